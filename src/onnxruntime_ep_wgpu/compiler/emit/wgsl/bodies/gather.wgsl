// An element of x at the place along an axis that an index says; negative ones count from the end.
#if MAY_BE_EMPTY
  if ($extent == 0u) { return $out_t(); }
#end
  let i = element_of(indices_at(picked), $extent);
  return x_at(outer, i, inner);
