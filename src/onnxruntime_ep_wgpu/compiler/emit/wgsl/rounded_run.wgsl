// Rounds a run of ROUNDED4 fours of a row to 8 bits. The largest magnitude is 127 steps. The order is that of weights with DOTS
// elements per byte: byte i of word j % DOTS has element j % DOTS + DOTS * i, counted from the previous words on.
//
// The maximum of bits detects NaN and infinity: the step is one of them then, and so are all sums. The constant that is added to
// a number of steps makes a float with that many more units in the last place. The low byte of this float is the integer.
fn largest_bits(it: array<vec4f, $ROUNDED4>) -> u32 {
  var bits = vec4u();
#for j ROUNDED4
  bits = max(bits, bitcast<vec4u>(it[#j]) & vec4u(0x7fffffffu));
#end
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// The largest magnitude, at least one for which its 127th part and the reciprocal are normal numbers.
fn largest(bits: u32) -> f32 {
  let most = bitcast<f32>(bits);
  return select(most, 1e-35f, most < 1e-35f);
}

fn rounded(it: array<vec4f, $ROUNDED4>, most: f32) -> array<u32, $ROUNDED4> {
  let by = 127f / most;
#for j ROUNDED4
  let v#j = bitcast<vec4u>(it[#j] * by + vec4f(12582912f));
#end
  return array(
#for j ROUNDED4
    #[((v#((#j // DOTS * DOTS * 4 + #j % DOTS + DOTS * #i) // 4)[#((#j % DOTS + DOTS * #i) % 4)] & 255u) << #(8 * #i)u) for i 4 by |],
#end
  );
}
