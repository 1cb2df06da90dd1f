// Attention of at most ROWS rows that share keys and values, as when one token answers: the time is that of reading these,
// which are read once, a part of them by each workgroup. An invocation has the score of one row and key at a time, whose
// product PARTS invocations sum along a head, neighbours as it lies in memory; then four elements of the results of all rows,
// of which SHARES invocations sum a part of the keys each.
//
// APPENDS, row `past` of each sequence is new, and nobody has stored it yet: the first workgroup of a head of keys does. Others
// may be reading the caches meanwhile, so none takes that row from there. Of a sequence there are `groups` heads of keys; queries and
// new rows are read by sequence, head, step, which is the only one, and element.
#include flash_span

fn is_lowest(v: f32) -> bool { return bitcast<u32>(v) == 0xff800000u; }

// Four elements of a query or key from element d on; zeros from the end of it on, whatever lies in memory there.
fn within(d: u32, v: vec4f) -> vec4f {
  if ($SIZE_WHOLE) { return v; }
  return select(vec4f(), v, vec4u(d, d + 1u, d + 2u, d + 3u) < vec4u($SIZE));
}
fn q_part(batch: u32, i: u32, d: u32) -> vec4f {
  if (d >= $SIZE) { return vec4f(); }
#if APPENDS
  return within(d, q_at4(batch / $groups, batch % $groups * $rows + min(i, $rows - 1u), 0u, d));
#else
  return within(d, q_at4(batch, min(i, $rows - 1u), d));
#end
}
fn k_part(batch: u32, j: u32, d: u32) -> vec4f {
  if (d >= $SIZE) { return vec4f(); }
  return within(d, k_at4(batch, min(j, $keys - 1u), d));
}
const D4 = ($SIZE + 3u) / 4u;
const V4 = ($VALUE_SIZE + 3u) / 4u;
const PARTS = 8u;
const TOGETHER = $WG / PARTS;
const SHARES = $WG / V4;
const STRIDE = $KEYS + 4u;  // not all parts of a product in one bank
const SUMS = $WG + 8u;  // nor all of four neighbours in a result

var<workgroup> queries: array<vec4f, $ROWS * D4>;
var<workgroup> products: array<f32, max($ROWS * PARTS * STRIDE, min($ROWS, 2u) * 4u * SUMS)>;  // in the end sums of two rows at a time
var<workgroup> weights: array<f32, $WG>;
var<workgroup> factors: array<f32, $ROWS>;
#if APPENDS
var<workgroup> new_key: array<vec4f, D4>;

// The new row of the caches, one that they do not have where there is no place for it.
fn new_row(batch: u32) -> u32 {
  let at = past_at(batch / $groups);
  return select($keys, u32(at), at >= 0 && at < i32($keys));
}
fn key_part(batch: u32, j: u32, d4: u32, new_at: u32) -> vec4f {
  let row = min(j, $keys - 1u);
  if (row == new_at) { return new_key[d4]; }
  return k_part(batch, row, d4 * 4u);
}
fn new_v_part(batch: u32, d: u32) -> vec4f { return new_v_at4(batch / $groups, batch % $groups, 0u, d); }
fn value_part(batch: u32, j: u32, d4: u32, new_at: u32) -> vec4f {
  if (j == new_at) { return new_v_part(batch, d4 * 4u); }
  return v_at4(batch, j, d4 * 4u);
}
#else
fn key_part(batch: u32, j: u32, d4: u32, new_at: u32) -> vec4f { return k_part(batch, j, d4 * 4u); }
fn value_part(batch: u32, j: u32, d4: u32, new_at: u32) -> vec4f { return v_at4(batch, j, d4 * 4u); }
#end

fn kernel(w: u32, lane: u32) {
  let split = w % $splits;
  let batch = w / $splits / $tiles_q;
  let top = w / $splits % $tiles_q * $ROWS;
  let span = span_of(batch, top, min(top + $ROWS, $rows) - 1u, split, $KEYS);
#if SPLIT
  if (split >= span.parts) {  // of a cache with room; nobody reads what it leaves, which shall be numbers
    for (var e = lane; e < $ROWS * $VALUE_SIZE; e += $WG) {
      if (top + e / $VALUE_SIZE < $rows) { store(batch, top + e / $VALUE_SIZE, split, e % $VALUE_SIZE, 0f); }
    }
    if (lane < $ROWS && top + lane < $rows) {
      store_level(batch, top + lane, split, float_bits(0xff800000u), 0f, span.parts);
    }
    return;
  }
#end
#if APPENDS
  let new_at = new_row(batch);
  let stores = new_at < $keys && split == 0u && top == 0u;
  for (var e = lane; e < ($ROWS + 1u) * D4 + V4; e += $WG) {
    let d = e % D4 * 4u;
    if (e < $ROWS * D4) {
      queries[e] = q_part(batch, top + e / D4, d);
    } else if (e < ($ROWS + 1u) * D4) {
      let v = within(d, new_k_at4(batch / $groups, batch % $groups, 0u, d));
      new_key[e % D4] = v;
      if (stores) { k_cache_put4(batch, new_at, d, v); }
    } else if (stores) {
      let d_v = (e - ($ROWS + 1u) * D4) * 4u;
      v_cache_put4(batch, new_at, d_v, new_v_part(batch, d_v));
    }
  }
#else
  let new_at = $keys;
  for (var e = lane; e < $ROWS * D4; e += $WG) { queries[e] = q_part(batch, top + e / D4, e % D4 * 4u); }
#end
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
        let k = key_part(batch, first + j, d, new_at);
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
      let v = value_part(batch, first + j, d4, new_at);
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
    if (top + row < $rows) { store_level(batch, top + row, split, most, all, span.parts); }
  }
#for p (ROWS + 1) // 2
  workgroupBarrier();
#for h 1 + (ROWS > 1)
  for (var e = 0u; e < 4u; e++) { products[(#hu * 4u + e) * SUMS + lane] = sum#(2 * #p + #h)[e]; }
#end
  workgroupBarrier();
  for (var e = lane; e < #(1 + (ROWS > 1))u * $VALUE_SIZE; e += $WG) {
    let h = e / $VALUE_SIZE;
    let d = e % $VALUE_SIZE;
    let by = factors[#(2 * #p)u + h];
    var v = 0f;
    for (var s = 0u; s < SHARES; s++) { v += products[(h * 4u + d % 4u) * SUMS + s * V4 + d / 4u]; }
    if (top + #(2 * #p)u + h < $rows) { store(batch, top + #(2 * #p)u + h, split, d, select(v * by, 0f, by < 0f)); }
  }
#end
}
