// Grouped convolution of a channels-last image. An invocation computes COLUMNS neighbouring positions in a row, for four channels
// of the result, from the channels of their group, four at a time. The image elements of a row of taps are loaded once: columns
// with USED_X#x. Neighbouring invocations have neighbouring channels, so that they load and store contiguous runs.
//
// A workgroup has FOURS fours of channels of one group, and STRIPS runs of positions for each. Workgroup memory holds the weights
// of a row of taps and CHUNK channels at a time, while the next ones are loaded into registers. Without this, weights were 113 MB
// of cache reads for 8 images of 14 x 14 and 336 channels in groups of 24.
//
// Elements outside of the image are loaded from its edge and then replaced by zero, so that all loads of a row are in flight
// together.
const STRIPS = $WG / $FOURS;
const STAGED = $KERNEL_X * $CHUNK * $FOURS;

var<workgroup> staged: array<vec4<$y_t>, STAGED>;

fn pixel(image: u32, channel: u32, y: u32, x: u32) -> vec4<$y_t> {
  return select(vec4<$y_t>(), x_at4(image, min(y, $height - 1u), min(x, $width - 1u), channel), x < $width && y < $height);
}

// Element e of the weights of a stage, which is a row of taps and a chunk of channels.
fn weight(stage: u32, first: u32, e: u32) -> vec4<$y_t> {
  let row = stage / ($channels / $CHUNK);
  let chunk = stage % ($channels / $CHUNK);
  let tap = min(row, $KERNEL_Y - 1u) * $KERNEL_X + e / ($CHUNK * $FOURS);
  return w_at4(tap, chunk * $CHUNK + e / $FOURS % $CHUNK, first + e % $FOURS * 4u);
}

fn kernel(w: u32, lane: u32) {
  // Neighbouring workgroups have the same positions.
  let part = w % ($groups * $parts);
  let strip = w / ($groups * $parts) * STRIPS + lane / $FOURS;
  let features = part * ($FOURS * 4u);
  let feature = features + lane % $FOURS * 4u;
  let first = part / $parts * $channels;
  let mine = min(strip, $runs - 1u);
  let image = mine / $items;
  let item = mine - image * $items;
  let row = item / $strips;
  let column = item % $strips * $COLUMNS;
  let top = row * $STRIDE_Y - $pad_y;
  let left = column * $STRIDE_X - $pad_x;
#for x SPAN_X
#if USED_X#x
  let x#x = left + #xu;
#end
#end
#for c COLUMNS
  var s#c = vec4<$y_t>($y_t(hidden_zero));  // as in `conv_taps`
#end
#for l LOADS
  var next#l = weight(0u, features, min(lane + #lu * $WG, STAGED - 1u));
#end
  for (var stage = 0u; stage < $KERNEL_Y * ($channels / $CHUNK); stage++) {
    workgroupBarrier();
#for l LOADS
    if (lane + #lu * $WG < STAGED) { staged[min(lane + #lu * $WG, STAGED - 1u)] = next#l; }
#end
    workgroupBarrier();
#for l LOADS
    next#l = weight(stage + 1u, features, min(lane + #lu * $WG, STAGED - 1u));
#end
    let y = top + stage / ($channels / $CHUNK) * $DILATION_Y;
    let channel = first + stage % ($channels / $CHUNK) * $CHUNK;
    for (var k4 = 0u; k4 < $CHUNK / 4u; k4++) {  // counts by one, which browsers can analyse
      let k = 4u * k4;
#for x SPAN_X
#if USED_X#x
      let v#x = pixel(image, channel + k, y, x#x);
#end
#end
      // Unrolled, because not every shader compiler unrolls a loop over registers.
#for t KERNEL_X
      {
#for e 4
        let w#e = staged[(#tu * $CHUNK + k + #eu) * $FOURS + lane % $FOURS];
#end
#for c COLUMNS
        s#c += #[v#(#c * STRIDE_X + #t * DILATION_X)[#e] * w#e for e 4 by +];
#end
      }
#end
    }
  }
  if (lane / $FOURS < STRIPS && strip < $runs) {
#for c COLUMNS
    if (column + #cu < $out_width) { y_put4(image, row * $out_width + column + #cu, feature, s#c); }
#end
  }
}
