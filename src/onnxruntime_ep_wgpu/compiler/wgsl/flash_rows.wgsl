// Attention of at most ROWS rows that share keys and values, as when one token answers: the time is that of reading these,
// which are read once, a part of them by each workgroup. An invocation has the score of one row and key at a time, whose
// product PARTS invocations sum along a head, neighbours as it lies in memory; then four elements of the results of all rows,
// of which SHARES invocations sum a part of the keys each.
#include flash_span
const D4 = ($SIZE + 3u) / 4u;
const V4 = ($VALUE_SIZE + 3u) / 4u;
const PARTS = 8u;
const TOGETHER = $WG / PARTS;
const SHARES = $WG / V4;
const STRIDE = $KEYS + 4u;  // not all parts of a product in one bank

var<workgroup> queries: array<vec4f, $ROWS * D4>;
var<workgroup> products: array<f32, $ROWS * PARTS * STRIDE>;  // in the end what invocations have summed, of one row at a time
var<workgroup> weights: array<f32, $WG>;
var<workgroup> factors: array<f32, $ROWS>;

fn kernel(w: u32, lane: u32) {
  let split = w % $splits;
  let batch = w / $splits / $tiles_q;
  let top = w / $splits % $tiles_q * $ROWS;
  let span = span_of(batch, top, min(top + $ROWS, $rows) - 1u, split, $KEYS);
  for (var e = lane; e < $ROWS * D4; e += $WG) { queries[e] = q_part(batch, top + e / D4, e % D4 * 4u); }
  let row = lane / $KEYS;
  let key = lane % $KEYS;
  let query = min(top + row, $rows - 1u);
  let part = lane % PARTS;
  let d4 = lane % V4;
  let own = select($KEYS, lane / V4, lane / V4 < SHARES);
  var highest = float_bits(0xff800000u);
  var total = 0f;
#for r ROWS
  var sum#r = vec4f();
#end
  for (var first = span.begin; first < span.end; first += $KEYS) {
    workgroupBarrier();
    for (var j = lane / PARTS; j < $KEYS; j += TOGETHER) {
#for r ROWS
      var product#r = 0f;
#end
      for (var d = part; d < D4; d += PARTS) {
        let k = k_part(batch, first + j, d * 4u);
#for r ROWS
        product#r += dot(k, queries[#ru * D4 + d]);
#end
      }
#for r ROWS
      products[(#ru * PARTS + part) * STRIDE + j] = product#r;
#end
    }
    workgroupBarrier();
    var s = float_bits(0xff800000u);
    if (first + key < span.end && sees(span.start, query, first + key)) {
      var v = 0f;
      for (var p = 0u; p < PARTS; p++) { v += products[(row * PARTS + p) * STRIDE + key]; }
      s = score_of(batch, query, first + key, v);
    }
    // A NaN among the scores may get lost here. It does not in the sum, and is the result of its row then.
    let now = max(highest, lanes_max(lane, $KEYS, s));
    let base = select(now, 0f, is_lowest(now));
    let factor = exp(highest - base);
    let weight = exp(s - base);
    total = total * factor + weight;
    highest = now;
    weights[lane] = weight;
    if (key == 0u) { factors[row] = factor; }
    workgroupBarrier();
#for r ROWS
    sum#r *= factors[#r];
#end
    for (var j = own; j < min($KEYS, span.end - first); j += SHARES) {
      let v = v_at4(batch, first + j, d4 * 4u);
#for r ROWS
      sum#r += weights[#ru * $KEYS + j] * v;
#end
    }
  }
  total = lanes_sum(lane, $KEYS, total);
  let sink = sink_of(batch, query, split);
  let most = max(highest, sink);
  let level = select(most, 0f, is_lowest(most));
  let all = total * exp(highest - level) + exp(sink - level);
  if (key == 0u) {
    factors[row] = factor_of(highest, level, all);
    if (top + row < $rows) { store_level(batch, top + row, split, most, all); }
  }
#for r ROWS
  workgroupBarrier();
  for (var e = 0u; e < 4u; e++) { products[lane * 4u + e] = sum#r[e]; }
  workgroupBarrier();
  if (top + #ru < $rows) {
    let by = factors[#r];
    for (var e = lane; e < $VALUE_SIZE; e += $WG) {
      var v = 0f;
      for (var s = 0u; s < SHARES; s++) { v += products[s * V4 * 4u + e]; }
      store(batch, top + #ru, split, e, select(v * by, 0f, by < 0f));
    }
  }
#end
}
