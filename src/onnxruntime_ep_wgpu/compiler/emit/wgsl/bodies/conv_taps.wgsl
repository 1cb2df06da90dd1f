// An element of a grouped convolution with few channels per group, `per_group` features each. The sum begins with a zero that no
// driver removes: otherwise a sum of minus zeros differs from the CPU provider's.
  var total = $out_t(hidden_zero);
  for (var c = 0u; c < $channels; c++) {
    let channel = feature / $per_group * $channels + c;
#include bodies/taps
    total += x_at(image, channel, #[i#k for k RANK]) * w_at(feature, c, #[t#k for k RANK]);
#for k RANK
  }
#end
  }
  return total;
