// Permutes the rows of a tile in workgroup memory, in fours, within blocks of `block` fours, a power of two up to 8. `lanes`
// neighbouring invocations fetch parts of one row, numbered by `part`. Without the permutation they would all store to one bank,
// because the elements of a part are whole rows of memory apart. So part p of four rows is stored at the place of other rows.
#inline exchange(four, part, lanes, block) four ^ (((part) % lanes * max(1u, block / lanes)) & (block - 1u))
