// A run of ROUNDED4 fours of a row rounded to 8 bits, whose largest magnitude is 127 steps, in the order of weights of which DOTS lie
// in each byte's place: byte i of word j % DOTS has element j % DOTS + DOTS * i of the words before it on. The largest of bits finds
// NaN and infinity: the step is one then, and so are all sums. What is added to a number of steps makes a float that has as many units
// in the last place more, whose low byte is the integer.
fn largest_bits(it: array<vec4f, $ROUNDED4>) -> u32 {
  var bits = vec4u();
#for j ROUNDED4
  bits = max(bits, bitcast<vec4u>(it[#j]) & vec4u(0x7fffffffu));
#end
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// The largest magnitude, or the least of which a 127th and what divides by it are normal numbers.
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
