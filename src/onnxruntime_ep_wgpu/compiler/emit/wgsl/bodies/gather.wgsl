// An element of x at the index along an axis. Negative indices count from the end.
#if MAY_BE_EMPTY
  if ($extent == 0u) { return $out_t(); }
#end
  let i = element_of(indices_at(picked), $extent);
  return x_at(outer, i, inner);
