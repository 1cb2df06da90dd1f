// The bias of a score: FILTER for padding, as defined by the mask. A mask of RANK 1 has the ends of the sequences and, with
// BEGINS, their beginnings after these. Other masks are 0 for padding. SHORT: the mask has no keys from `known` on.
#if SHORT
  if (j >= $known) { return 0f; }
#end
#if RANK == 1 and not BEGINS
  return select(0f, f32($FILTER), i32(j) >= mask_at(batch));
#end
#if RANK == 1 and BEGINS
  return select(0f, f32($FILTER), i32(j) >= mask_at(batch) || i32(j) < mask_at(batch + $batches));
#end
#if RANK == 2
  return select(0f, f32($FILTER), mask_at(batch, j) <= 0);
#end
#if RANK == 3
  return select(0f, f32($FILTER), mask_at(batch, i, j) <= 0);
#end
#if RANK == 4
  return select(0f, f32($FILTER), mask_at(batch, 0u, i + $past, j) <= 0);
#end
