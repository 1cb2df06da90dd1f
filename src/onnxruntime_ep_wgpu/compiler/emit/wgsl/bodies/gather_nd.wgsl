// The slice of x at COUNT indices along as many axes. Negative indices count from the end.
#for k COUNT
#if MAY_BE_EMPTY#k
  if ($extent#k == 0u) { return $out_t(); }
#end
  let i#k = element_of(indices_at(batch, picked, #ku), $extent#k);
#end
  return x_at(batch, #[i#k for k COUNT], inner);
