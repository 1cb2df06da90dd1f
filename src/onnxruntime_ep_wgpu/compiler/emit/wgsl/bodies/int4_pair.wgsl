// Two neighbours divided by their scales, as integers of 4 bits from -8 to 7, the first in the low half of a byte.
  let low = round(quotient_f32(x_at(batch, head, row, 2u * d), s_at(batch, head, row, 2u * d)));
  let high = round(quotient_f32(x_at(batch, head, row, 2u * d + 1u), s_at(batch, head, row, 2u * d + 1u)));
  return min(u32(clamp(low, -8f, 7f) + 8f), 15u) | (min(u32(clamp(high, -8f, 7f) + 8f), 15u) << 4u);
