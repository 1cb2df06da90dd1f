// Rows of a tile in workgroup memory, in fours, that exchange their places within blocks of `block` fours, a power of two up to 8:
// `lanes` invocations that are neighbours fetch parts of one row, `part` counting them, and would all store to one bank, because a
// part's elements are whole rows of memory apart. So part p of four rows lies where that of other rows would.
#inline exchange(four, part, lanes, block) four ^ (((part) % lanes * max(1u, block / lanes)) & (block - 1u))
