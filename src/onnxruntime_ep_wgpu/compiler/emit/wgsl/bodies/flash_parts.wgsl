// Combines the parts of an attention result: the level of each part of the keys, its sum of weights and its weighted sum of
// values. Only the first parts have keys; each part stores their number. AT_ONCE parts are loaded together, the first ones before
// that number is known.
  let with_keys = levels_at(batch, row, 0u, 2u);  // parts
  var most = float_bits(0xff800000u);
  var total = 0f;
  var sum = 0f;
  var first = 0u;
  loop {
#for s AT_ONCE
    let at#s = min(first + #su, $splits - 1u);
    let level#s = levels_at(batch, row, at#s, 0u);
    let total#s = levels_at(batch, row, at#s, 1u);
    let sum#s = parts_at(batch, row, at#s, d);
#end
    let parts = min(u32(with_keys), $splits);
    let before = most;
#for s AT_ONCE
    most = select(most, max_f32(most, level#s), first + #su < parts);
#end
    let base = select(most, 0f, bitcast<u32>(most) == 0xff800000u);
    total *= exp(before - base);
    sum *= exp(before - base);
#for s AT_ONCE
    {
      let share = exp(level#s - base);
      total += select(0f, share * total#s, first + #su < parts);
      sum += select(0f, share * sum#s, first + #su < parts);
    }
#end
    first += #(AT_ONCE)u;
    if (first >= parts) { break; }
  }
  if (total == 0f) { return select(float_bits(0x7fc00000u), 0f, $MASKED || $keys == 0u); }
  if ($NAN_IS_ZERO && isnan_f32(total)) { return 0f; }
  return sum / total;
