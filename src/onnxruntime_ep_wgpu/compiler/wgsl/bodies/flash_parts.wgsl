// An element of attention from what each part of the keys gave: its level, its sum of weights and its weighted sum of values. Of
// the parts the first ones have keys, as many as each of them says.
  let parts = min(u32(levels_at(batch, row, 0u, 2u)), $splits);
  var most = float_bits(0xff800000u);
  for (var s = 0u; s < parts; s++) { most = max_f32(most, levels_at(batch, row, s, 0u)); }
  let level = select(most, 0f, bitcast<u32>(most) == 0xff800000u);
  var total = 0f;
  var sum = 0f;
  for (var s = 0u; s < parts; s++) {
    let share = exp(levels_at(batch, row, s, 0u) - level);
    total += share * levels_at(batch, row, s, 1u);
    sum += share * parts_at(batch, row, s, d);
  }
  if (total == 0f) { return select(float_bits(0x7fc00000u), 0f, $MASKED || $keys == 0u); }
  if ($NAN_IS_ZERO && isnan_f32(total)) { return 0f; }
  return sum / total;
