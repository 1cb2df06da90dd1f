// An element of weights of BITS bits, which may cross bytes, minus the zero point and times the scale of its group. The group is
// the block of BLOCK columns, or LOOKED_UP for the column. ZEROS: "packed" like the weights, "whole", or "none" for the middle of
// the range.
#default LOOKED_UP has("groups")
  let bit = k * $BITS;
  let next = min(bit / 8u + 1u, #(BYTES - 1)u);
  let q = ((x_at(n, bit / 8u) | (x_at(n, next) << 8u)) >> (bit % 8u)) & #((1 << BITS) - 1)u;
#if LOOKED_UP
  let group = u32(clamp(g_at(min(k, $groups - 1u)), 0, #(BLOCKS - 1)));
#else
  let group = k / $BLOCK;
#end
#if ZEROS == "packed"
  let place = group * $BITS;
  let after = min(place / 8u + 1u, #(ZERO_BYTES - 1)u);
  let zero = f32(((z_at(n, place / 8u) | (z_at(n, after) << 8u)) >> (place % 8u)) & #((1 << BITS) - 1)u);
#end
#if ZEROS == "whole"
  let zero = z_at(n, group);
#end
#if ZEROS == "none"
  let zero = #(1 << BITS - 1)f;
#end
  return (f32(q) - zero) * s_at(n, group);
