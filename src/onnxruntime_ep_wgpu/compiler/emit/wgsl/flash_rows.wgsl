// Attention of at most ROWS rows that share keys and values, such as one token. Long caches are bound by reading keys and values:
// each workgroup reads a part of them, once. Short caches are bound by latency. So the loads of a block of KEYS keys are in
// flight together, and with those of the queries: addresses are clamped, so that no branch separates them. With one block, there
// are six barriers. On an H200 a token took 8 us, for 16 keys as for 150, when its loads waited for each other at 23 barriers.
//
// PARTS neighbours accumulate the products of a key and all rows along a head, in memory order. Then each invocation has the
// score of one row and key. For each four elements of the results, SHARES invocations accumulate a part of the keys each, for
// HELD rows.
//
// APPENDS: row `past` of each sequence is new and not stored yet. The first workgroup of a head of keys stores it. Other
// workgroups may read the caches at the same time, so none uses the stored row. A sequence has `groups` heads of keys. Queries
// and new rows are read by sequence, head, step, of which there is one, and element.
#default APPENDS has("new_k")
#include flash_span
#include flash_store

fn is_lowest(v: f32) -> bool { return bitcast<u32>(v) == 0xff800000u; }

const D4 = ($SIZE + 3u) / 4u;
const V4 = ($VALUE_SIZE + 3u) / 4u;
const TOGETHER = $WG / $PARTS;
const BANDS = $ROWS / $HELD;
const PASSED = min($ROWS, 2u);  // rows per invocation with sums in workgroup memory at a time
const STRIDE = $KEYS * $ROWS + 4u;  // avoids one bank for all parts of a product
#if WIDTH == 1
alias held = f32;
#else
alias held = vec#(WIDTH)f;
#end
fn one_of(v: held, r: u32) -> f32 {
#if WIDTH == 1
  return v;
#else
  return v[r];
#end
}

var<workgroup> queries: array<vec4f, $ROWS * D4>;
var<workgroup> products: array<f32, max($PARTS * STRIDE, 4u * PASSED * $WG)>;  // by part, key and row; finally sums
var<workgroup> scores: array<f32, $WG>;  // by key and row; finally sums of weights by row and share
var<workgroup> highest_near: array<f32, $WG / $NEAR>;
var<workgroup> weights: array<f32, $WG>;  // by key and row, like factors
var<workgroup> factors: array<f32, $ROWS>;
var<workgroup> row_levels: array<vec2f, $ROWS>;

#inline weights_at(at) held(#[weights[(at) + #eu] for e WIDTH])

// Four elements of a query or key from element d on, with zeros past the end, whatever the memory contains there.
fn within(d: u32, v: vec4f) -> vec4f {
  if ($SIZE % (4u * $PARTS) == 0u) { return v; }
  return select(vec4f(), v, vec4u(d, d + 1u, d + 2u, d + 3u) < vec4u($SIZE));
}
// Clamps addresses to row `last` of the caches and to the end of a head.
fn k_part(batch: u32, j: u32, d4: u32, last: u32) -> k_at4_words_t {
  return k_at4_words(batch, min(j, last), min(d4, D4 - 1u) * 4u);
}
fn v_part(batch: u32, j: u32, d4: u32, last: u32) -> v_at4_words_t { return v_at4_words(batch, min(j, last), d4 * 4u); }
// The e-th four elements of the queries from row `top` on.
fn q_part(batch: u32, top: u32, e: u32) -> vec4f {
  let row = min(top + e / D4, $rows - 1u);
#if APPENDS
  return q_at4(batch / $groups, batch % $groups * $rows + row, 0u, e % D4 * 4u);
#else
  return q_at4(batch, row, e % D4 * 4u);
#end
}
#if APPENDS
var<workgroup> new_key: array<vec4f, D4>;

// The index of the new row of the caches, or of a row beyond them if they have no room.
fn new_row(batch: u32) -> u32 {
  let at = past_at(batch / $groups);
  return select($keys, u32(at), at >= 0 && at < i32($keys));
}
#end

fn kernel(w: u32, number: u32) {
  let lane = number % $WG;  // lets a browser prove bounds
  let split = w % $splits;
  let batch = w / $splits / $tiles_q;
  let top = w / $splits % $tiles_q * $ROWS;
  let span = span_of(batch, top, min(top + $ROWS, $rows) - 1u, split, $KEYS);
  // Without keys, such as the room of a cache: zeros, so that unused values are numbers.
  if ($keys == 0u || (split > 0u && span.begin == span.end)) {
    for (var e = lane; e < $ROWS * $VALUE_SIZE; e += $WG) {
      if (top + e / $VALUE_SIZE < $rows) { store(batch, top + e / $VALUE_SIZE, split, e % $VALUE_SIZE, 0f); }
    }
    if (lane < $ROWS && top + lane < $rows) {
      store_level(batch, top + lane, split, float_bits(0xff800000u), 0f, span.parts);
    }
    return;
  }
#if APPENDS
  let new_at = new_row(batch);
  let stored = min(span.end, new_at);
#else
  let stored = span.end;
#end
  let last = max(stored, 1u) - 1u;
  let part = lane % $PARTS;
  let at_key = lane / $PARTS;
  let d4 = lane % V4;
  let band = lane / V4 % BANDS;
  let share = lane / (V4 * BANDS);
  let own = min(share, $SHARES - 1u);
#for j KEY_STEPS
#for d PART_STEPS
  var k#j_#d = k_part(batch, span.begin + at_key + #ju * TOGETHER, part + #du * $PARTS, last);
#end
#end
#for q QUERY_STEPS
  let q#q = q_part(batch, top, lane + #qu * $WG);
#end
#for i VALUE_STEPS
  var v#i = v_part(batch, span.begin + own + #iu * $SHARES, d4, last);
#end
#if APPENDS
  let new_k = new_k_at4(batch / $groups, batch % $groups, 0u, min(lane, D4 - 1u) * 4u);
  let new_v = new_v_at4(batch / $groups, batch % $groups, 0u, d4 * 4u);
  if (lane < D4) { new_key[lane] = new_k; }
#end
#for q QUERY_STEPS
  if (lane + #qu * $WG < $ROWS * D4) { queries[lane + #qu * $WG] = q#q; }
#end
  let row = lane % $ROWS;
  let key = lane / $ROWS;
  let query = min(top + row, $rows - 1u);
  let sink = sink_of(batch, query, split);
  var highest = float_bits(0xff800000u);
#for r HELD
  var sum#r = vec4f();
  var total#r = 0f;
#end
  var first = span.begin;
  loop {  // runs once without keys
    workgroupBarrier();
#for j KEY_STEPS
#for r ROWS
    var product#j_#r = 0f;
#end
#end
#for d PART_STEPS
    {
      let at = min(part + #du * $PARTS, D4 - 1u);
      let begin = (part + #du * $PARTS) * 4u;
#for r ROWS
      let q#r = within(begin, queries[#ru * D4 + at]);
#end
#if APPENDS
      let fresh = new_key[at];
#end
#for j KEY_STEPS
      {
#if APPENDS
        let k = within(begin, select(k_at4_of(k#j_#d), fresh, first + at_key + #ju * TOGETHER == new_at));
#else
        let k = within(begin, k_at4_of(k#j_#d));
#end
#for r ROWS
        product#j_#r += dot(k, q#r);
#end
      }
#end
    }
#end
    if (first + $KEYS < span.end) {
#for j KEY_STEPS
#for d PART_STEPS
      k#j_#d = k_part(batch, first + $KEYS + at_key + #ju * TOGETHER, part + #du * $PARTS, last);
#end
#end
    }
#for j KEY_STEPS
    if (at_key + #ju * TOGETHER < $KEYS) {
      let at = part * STRIDE + (at_key + #ju * TOGETHER) * $ROWS;
#for r ROWS
      products[at + #ru] = product#j_#r;
#end
    }
#end
    workgroupBarrier();
    let at = min(lane, $KEYS * $ROWS - 1u);
#for p PARTS
    let p#p = products[#pu * STRIDE + at];
#end
    let v = #[p#p for p PARTS by +];
    let place = first + key;
    let seen = key < $KEYS && place < span.end && sees(span.start, query, place);
    let s = select(float_bits(0xff800000u), score_of(batch, query, min(place, max(span.end, 1u) - 1u), v), seen);
    scores[lane] = s;
    workgroupBarrier();
    // Combines NEAR keys first. The maximum may lose a NaN among the scores. The sum does not, and becomes the result of the row.
    let near = key / $NEAR * $NEAR * $ROWS + row;
#for i NEAR
    let s#i = scores[near + #iu * $ROWS];
#end
    var now = s0;
#for i NEAR
    now = max(now, s#i);
#end
    if (key % $NEAR == 0u) { highest_near[key / $NEAR * $ROWS + row] = now; }
    workgroupBarrier();
#for i KEYS // NEAR
    let n#i = highest_near[#iu * $ROWS + row];
#end
    now = highest;
#for i KEYS // NEAR
    now = max(now, n#i);
#end
    let base = select(now, 0f, is_lowest(now));
    let factor = exp(highest - base);
    let weight = exp(s - base);
    highest = now;
    weights[lane] = weight;
    if (key == 0u) { factors[row] = factor; }
    workgroupBarrier();
#for c (HELD + 3) // 4
    let by#c = held(#[factors[band * $HELD + #(#c * WIDTH + #e)u] for e WIDTH]);
#end
#for r HELD
    sum#r *= one_of(by#(#r // 4), #(#r % 4)u);
    total#r *= one_of(by#(#r // 4), #(#r % 4)u);
#end
    // Keys past the end have no weight. Their values, whatever they are, are replaced by zeros.
    let at_weight = own * $ROWS + band * $HELD;
#for i VALUE_STEPS
#for c (HELD + 3) // 4
#if KEYS % SHARES
    let at#i_#c = min(at_weight + #iu * $SHARES * $ROWS + #(#c * WIDTH)u, $WG - $WIDTH);
    let by#i_#c = select(held(), weights_at(at#i_#c), own + #iu * $SHARES < $KEYS);
#else
    let by#i_#c = weights_at(at_weight + #iu * $SHARES * $ROWS + #(#c * WIDTH)u);
#end
#end
#end
    if ($KEYS % $SHARES == 0u && first + $KEYS <= stored) {
#for i VALUE_STEPS
      {
        let v = v_at4_of(v#i);
#for r HELD
        sum#r += one_of(by#i_#(#r // 4), #(#r % 4)u) * v;
        total#r += one_of(by#i_#(#r // 4), #(#r % 4)u);
#end
      }
#end
    } else {
#for i VALUE_STEPS
      {
        let j = own + #iu * $SHARES;
#if APPENDS
        let stored_v = select(v_at4_of(v#i), new_v, first + j == new_at);
#else
        let stored_v = v_at4_of(v#i);
#end
        let v = select(vec4f(), stored_v, j < $KEYS && first + j < span.end);
#for r HELD
        sum#r += one_of(by#i_#(#r // 4), #(#r % 4)u) * v;
        total#r += one_of(by#i_#(#r // 4), #(#r % 4)u);
#end
      }
#end
    }
    first += $KEYS;
    if (first >= span.end) { break; }
#for i VALUE_STEPS
    v#i = v_part(batch, first + own + #iu * $SHARES, d4, last);
#end
  }
  if (d4 == 0u && share < $SHARES) {
#for r HELD
    scores[(band * $HELD + #ru) * $SHARES + own] = total#r;
#end
  }
  if (key == 0u) { row_levels[row] = vec2f(highest, sink); }
#for p (HELD + 1) // 2
#if #p
  workgroupBarrier();
#end
#for h 1 + (HELD > 1)
#for e 4
  products[(#hu * $WG + lane) * 4u + #eu] = sum#(2 * #p + #h)[#e];
#end
#end
  workgroupBarrier();
  for (var e = lane; e < PASSED * BANDS * $VALUE_SIZE; e += $WG) {
    let one = min(e, PASSED * BANDS * $VALUE_SIZE - 1u);  // always true, but unknown to a browser
    let h = one / $VALUE_SIZE % PASSED;
    let of_band = one / $VALUE_SIZE / PASSED;
    let d = one % $VALUE_SIZE;
    let i = of_band * $HELD + #(2 * #p)u + h;
#for s SHARES
    let v#s = products[(h * $WG + (#su * BANDS + of_band) * V4) * 4u + d];
    let t#s = scores[i * $SHARES + #su];
#end
    let v = #[v#s for s SHARES by +];
    let total = #[t#s for s SHARES by +];
    let most = max(row_levels[i].x, row_levels[i].y);
    let level = select(most, 0f, is_lowest(most));
    let all = total * exp(row_levels[i].x - level) + exp(row_levels[i].y - level);
    let by = factor_of(row_levels[i].x, level, all);
    if (top + i < $rows) {
      store(batch, top + i, split, d, select(v * by, 0f, by < 0f));
      if (d == 0u) { store_level(batch, top + i, split, most, all, span.parts); }
    }
  }
#end
#if APPENDS
  if (new_at < $keys && split == 0u && top == 0u) {
    if (lane < D4) { k_cache_put4(batch, new_at, lane * 4u, within(lane * 4u, new_key[lane])); }
    if (lane < V4) { v_cache_put4(batch, new_at, lane * 4u, new_v); }
  }
#end
}
