// The selected boxes of a row: in the order of their scores, those that no earlier selected box covers. In a dispatch, a
// workgroup processes PARTS blocks of the sorted boxes. Each lane compares its box with those already selected, then with all of
// the block, which gives a bit mask. One lane evaluates the masks in order. `place` are the boxes of a row that have a score,
// `there` is their number, and `order` their sorted order.
var<workgroup> boxes: array<vec4<f32>, $BLOCK>;
var<workgroup> masks: array<u32, #(BLOCK * BLOCK // 32)>;
var<workgroup> alive: array<u32, $BLOCK>;
var<workgroup> begin: u32;
var<workgroup> last: u32;

// The corners of a box: the least and the largest coordinates along both axes.
fn corners(batch: u32, box: u32) -> vec4<f32> {
  let a = f32(x_at(batch, box, 0u));
  let b = f32(x_at(batch, box, 1u));
  let c = f32(x_at(batch, box, 2u));
  let d = f32(x_at(batch, box, 3u));
#if CENTRED
  return vec4<f32>(a - c / 2f, b - d / 2f, a + c / 2f, b + d / 2f);
#else
  return vec4<f32>(min(a, c), min(b, d), max(a, c), max(b, d));
#end
}

fn covers(a: vec4<f32>, b: vec4<f32>, most: f32) -> bool {
  let low = max(a.xy, b.xy);
  let high = min(a.zw, b.zw);
  let shared_part = (high.x - low.x) * (high.y - low.y);
  let first = (a.z - a.x) * (a.w - a.y);
  let second = (b.z - b.x) * (b.w - b.y);
  let whole = first + second - shared_part;
  if (high.x <= low.x || high.y <= low.y || shared_part <= 0f || first <= 0f || second <= 0f || whole <= 0f) { return false; }
  return shared_part / whole > most;
}

fn box_of(row: u32, at: u32) -> u32 { return u32(place_at(row, u32(order_at(row, at)))); }

fn kernel(w: u32, lane: u32) {
  let row = w;
  let batch = row / $classes;
  let limit = f32(limit_at(0u));
  if (lane == 0u) {
    last = min($columns, u32(there_at(row)));
    begin = 0u;
    if ($repetition > 0u) { begin = u32(count_at(row)); } else { count_put(row, 0i); }
  }
  let columns = workgroupUniformLoad(&last);
  for (var part = 0u; part < $PARTS; part++) {
    let known = workgroupUniformLoad(&begin);
    let first = ($repetition * $PARTS + part) * $BLOCK;
    if (known >= $most || first >= columns) { return; }
    let count = min($BLOCK, columns - first);
    let words = (count + 31u) / 32u;
    storageBarrier();  // the boxes of the previous part
    var lives = first + lane < columns;
    var mine = vec4<f32>();
    if (lives) {
      mine = corners(batch, box_of(row, first + lane));
      for (var k = 0u; k < known; k++) {
        if (covers(corners(batch, u32(box_at(row, k))), mine, limit)) {
          lives = false;
          break;
        }
      }
    }
    boxes[lane] = mine;
    alive[lane] = select(0u, 1u, lives);
    workgroupBarrier();
    for (var word = lane / 32u; word < words; word++) {
      var bits = 0u;
      for (var bit = 0u; bit < 32u; bit++) {
        let other = word * 32u + bit;
        if (other > lane && lives && alive[other] == 1u && covers(mine, boxes[other], limit)) { bits |= 1u << bit; }
      }
      masks[lane * #(BLOCK // 32)u + word] = bits;
    }
    workgroupBarrier();
    if (lane == 0u) {
      var chosen = known;
      for (var k = 0u; k < count && chosen < $most; k++) {
        if (alive[k] == 1u) {
          box_put(row, chosen, i32(box_of(row, first + k)));
          chosen++;
          for (var word = k / 32u; word < words; word++) {
            var bits = masks[k * #(BLOCK // 32)u + word];
            while (bits != 0u) {
              let bit = firstTrailingBit(bits);
              alive[word * 32u + bit] = 0u;
              bits &= bits - 1u;
            }
          }
        }
      }
      count_put(row, i32(chosen));
      begin = chosen;
    }
  }
}
