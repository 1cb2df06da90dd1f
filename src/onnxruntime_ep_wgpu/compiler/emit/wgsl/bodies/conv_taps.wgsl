// An element of a convolution with groups of few channels, `per_group` features of one. The sum begins with a zero that no driver
// leaves out: without it that of minus zeros is another one than the CPU provider's.
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
