// An element of x at the index along AXIS. Negative indices count from the end.
#if MAY_BE_EMPTY
  if ($extent == 0u) { return $out_t(); }
#end
  let i = element_of(indices_at(#[at#k for k RANK]), $extent);
  return x_at(#[#("i" if #k == AXIS else "at#k") for k RANK]);
