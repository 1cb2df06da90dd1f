// Reverses the first elements along the TIME axis, as many as the sequence at this index of the BATCH axis has.
  let length = u32(clamp(lengths_at(at#(BATCH)), 0, i32($extent)));
  let i = select(at#(TIME), length - 1u - at#(TIME), at#(TIME) < length);
  return x_at(#[#("i" if #k == TIME else "at#k") for k RANK]);
