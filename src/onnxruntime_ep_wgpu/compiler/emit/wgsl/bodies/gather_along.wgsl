// An element of x at the place along an AXIS that an index says; negative ones count from the end.
#if MAY_BE_EMPTY
  if ($extent == 0u) { return $out_t(); }
#end
  let i = element_of(indices_at(#[at#k for k RANK]), $extent);
  return x_at(#[#("i" if #k == AXIS else "at#k") for k RANK]);
