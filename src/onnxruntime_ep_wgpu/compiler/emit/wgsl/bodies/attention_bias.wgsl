// The bias of a score: minus infinity if a query must not see a key, else the mask. Query i stands at position i after the past;
// with LENGTHS, the last query stands at the last valid key. It sees keys from LEFT before it to RIGHT after it, -1 for all.
#default LENGTHS has("lengths")
  let minus_infinity = float_bits(0xff800000u);
  var at = i32(i) + i32($past);
#if LENGTHS
  let valid = clamp(lengths_at(batch), 0, i32($total));
  at += valid - i32($queries);
  if (i32(j) >= valid) { return minus_infinity; }
#end
#if RIGHT >= 0
  if (i32(j) > at + #(RIGHT)) { return minus_infinity; }
#end
#if LEFT >= 0
  if (i32(j) < at - #(LEFT)) { return minus_infinity; }
#end
#if MASK == "none"
  return 0f;
#else
  if (j >= $known) { return minus_infinity; }
#if MASK == "bool"
  return select(minus_infinity, 0f, mask_at(batch, head, i, j));
#else
  return mask_at(batch, head, i, j);
#end
#end
