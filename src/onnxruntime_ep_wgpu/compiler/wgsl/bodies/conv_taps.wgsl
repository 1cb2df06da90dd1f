// An element of a convolution with groups of few channels, `per_group` features of one.
  var total = $out_t();
  for (var c = 0u; c < $channels; c++) {
    let channel = feature / $per_group * $channels + c;
#include bodies/taps
    total += x_at(image, channel, #[i#k for k RANK]) * w_at(feature, c, #[t#k for k RANK]);
#for k RANK
  }
#end
  }
  return total;
