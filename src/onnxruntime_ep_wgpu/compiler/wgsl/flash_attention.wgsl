// Attention without its matrix of scores: y = softmax(scored(q k^T)) v, for TILE_Q queries of a workgroup and TILE_K keys at
// a time. What was summed is scaled down whenever a higher score is met (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018; Dao et al., "FlashAttention", 2022), so memory is linear in queries and keys.
//
// An invocation sums 4 ROWS4 queries by 4 COLUMNS4 keys of a tile of scores, then by 4 VALUES4 elements of results; a vec4
// is four queries. SLICES groups of invocations take turns in the tiles of keys, which keeps few queries parallel. Scores
// go through workgroup memory to one loop in which `scored`, the maps between the products, is in the text once; there
// PARTS invocations share a row. What an invocation sums is in variables of their own, and UNROLLED steps of both products are
// written out.
//
// Where neighbours in memory are elements of one query or key, Q_LANES or K_LANES invocations fetch it together, so that a load of
// a subgroup reaches few lines of memory. `exchanged` says where they store it.
#include flash_span
#include exchanged
const THREADS_Y = $TILE_Q / (4u * $ROWS4);
const THREADS = $THREADS_X * THREADS_Y;  // per slice
const TILE_K = $THREADS_X * 4u * $COLUMNS4;
const PARTS = THREADS / $TILE_Q;
const Q4 = $TILE_Q / 4u;
const K4 = TILE_K / 4u;
const V4 = $THREADS_X * $VALUES4;
const LAST4 = ($VALUE_SIZE - 1u) / 4u * 4u;
// Per slice: elements of q then k, $DEPTH at a time and queries or keys fastest; later $KEYS rows of v.
const OPERANDS = max((Q4 + K4) * $DEPTH, $KEYS * V4);
const Q_LANES = #(LANES if Q_ALONG else 1)u;
const K_LANES = #(LANES if K_ALONG else 1)u;
const SCORES = max(TILE_K, 4u * $THREADS_X) * Q4;

var<workgroup> operands: array<vec4f, $SLICES * OPERANDS>;
var<workgroup> scores: array<vec4f, $SLICES * SCORES>;  // keys by queries; in the end results by queries
var<workgroup> rows: array<vec4f, $SLICES * Q4>;  // a factor for each query
var<workgroup> highests: array<f32, $WG>;
var<workgroup> totals: array<f32, $WG>;

// Where element d of four queries, or keys, is.
fn q_place(d: u32, i4: u32) -> u32 {
  return d * Q4 + exchanged(i4, d / 4u, Q_LANES, $Q_BLOCK);
}
fn k_place(d: u32, j4: u32) -> u32 {
  return d * K4 + exchanged(j4, d / 4u, K_LANES, $K_BLOCK);
}

// Zeros from key `end` on, because nothing else is lost when it is multiplied by a weight of zero.
fn v_part(batch: u32, j: u32, d: u32, end: u32) -> vec4f {
  if (j >= end || d > LAST4) { return vec4f(); }
  return v_at4(batch, j, d);
}

fn kernel(w: u32, lane: u32) {
  let split = w % $splits;
  let batch = w / $splits / $tiles_q;
  let top = w / $splits % $tiles_q * $TILE_Q;
  let span = span_of(batch, top, min(top + $TILE_Q, $rows) - 1u, split, TILE_K);
  let slice = lane / THREADS;
  let me = lane % THREADS;
  let tx = me % $THREADS_X;
  let ty = me / $THREADS_X;
  let q_base = slice * OPERANDS;
  let k_base = q_base + Q4 * $DEPTH;
  let s_base = slice * SCORES;
  // As one of PARTS that look at the scores of a query.
  let row = me % $TILE_Q;
  let part = me / $TILE_Q;
  let query = min(top + row, $rows - 1u);

  var highest = float_bits(0xff800000u);
  var total = 0f;
#for c 4 * VALUES4
#for r ROWS4
  var sum#c_#r = vec4f();
#end
#end
  for (var turn = span.begin; turn < span.end; turn += $SLICES * TILE_K) {
    let first = turn + slice * TILE_K;
#for c 4 * COLUMNS4
#for r ROWS4
    var score#c_#r = vec4f();
#end
#end
    for (var depth = 0u; depth < $SIZE; depth += $DEPTH) {
      workgroupBarrier();
      for (var e = me; e < $TILE_Q * $DEPTH / 4u; e += THREADS) {
        let i = e / Q_LANES % $TILE_Q;
        let d = (e / (Q_LANES * $TILE_Q) * Q_LANES + e % Q_LANES) * 4u;
        let v = q_part(batch, top + i, depth + d);
        let at = q_base + q_place(d, i / 4u);
        operands[at][i % 4u] = v.x;
        operands[at + Q4][i % 4u] = v.y;
        operands[at + 2u * Q4][i % 4u] = v.z;
        operands[at + 3u * Q4][i % 4u] = v.w;
      }
      for (var e = me; e < TILE_K * $DEPTH / 4u; e += THREADS) {
        let j = e / K_LANES % TILE_K;
        let d = (e / (K_LANES * TILE_K) * K_LANES + e % K_LANES) * 4u;
        let v = k_part(batch, first + j, depth + d);
        let at = k_base + k_place(d, j / 4u);
        operands[at][j % 4u] = v.x;
        operands[at + K4][j % 4u] = v.y;
        operands[at + 2u * K4][j % 4u] = v.z;
        operands[at + 3u * K4][j % 4u] = v.w;
      }
      workgroupBarrier();
      for (var d = 0u; d < $DEPTH; d += $UNROLLED) {
#for u UNROLLED
        {
#for r ROWS4
          let q#r = operands[q_base + q_place(d + #uu, ty * $ROWS4 + #ru)];
#end
#for c COLUMNS4
          let k#c = operands[k_base + k_place(d + #uu, #cu * $THREADS_X + tx)];
#for e 4
#for r ROWS4
          score#(4 * #c + #e)_#r += k#c[#e] * q#r;
#end
#end
#end
        }
#end
      }
    }
#for c 4 * COLUMNS4
#for r ROWS4
    scores[s_base + ((#(#c // 4)u * $THREADS_X + tx) * 4u + #(#c % 4)u) * Q4 + ty * $ROWS4 + #ru] = score#c_#r;
#end
#end
    workgroupBarrier();
    // A NaN among the scores may get lost here. It does not in the sum, and is the result of its row then.
    var now = highest;
    for (var j = part; j < TILE_K; j += PARTS) {
      let at = s_base + j * Q4 + row / 4u;
      var s = float_bits(0xff800000u);
      if (first + j < span.end && sees(span.start, query, first + j)) { s = score_of(batch, query, first + j, scores[at][row % 4u]); }
      scores[at][row % 4u] = s;
      now = max(now, s);
    }
    highests[lane] = now;
    workgroupBarrier();
    for (var p = 0u; p < PARTS; p++) { now = max(now, highests[slice * THREADS + p * $TILE_Q + row]); }
    let base = select(now, 0f, is_lowest(now));
    let factor = exp(highest - base);
    var added = 0f;
    for (var j = part; j < TILE_K; j += PARTS) {
      let at = s_base + j * Q4 + row / 4u;
      let weight = exp(scores[at][row % 4u] - base);
      scores[at][row % 4u] = weight;
      added += weight;
    }
    total = total * factor + added;
    highest = now;
    if (part == 0u) { rows[slice * Q4 + row / 4u][row % 4u] = factor; }
    workgroupBarrier();
#for r ROWS4
    let down#r = rows[slice * Q4 + ty * $ROWS4 + #ru];
#for c 4 * VALUES4
    sum#c_#r *= down#r;
#end
#end
    for (var behind = 0u; behind < TILE_K; behind += $KEYS) {
      workgroupBarrier();
      for (var e = me; e < $KEYS * V4; e += THREADS) {
        operands[q_base + e] = v_part(batch, first + behind + e / V4, e % V4 * 4u, span.end);
      }
      workgroupBarrier();
      for (var j = 0u; j < $KEYS; j += $UNROLLED) {
#for u UNROLLED
        {
#for r ROWS4
          let weight#r = scores[s_base + (behind + j + #uu) * Q4 + ty * $ROWS4 + #ru];
#end
#for c VALUES4
          let v#c = operands[q_base + (j + #uu) * V4 + #cu * $THREADS_X + tx];
#for e 4
#for r ROWS4
          sum#(4 * #c + #e)_#r += v#c[#e] * weight#r;
#end
#end
#end
        }
#end
      }
    }
  }
  // What the invocations of a row, in all slices, have found.
  highests[lane] = highest;
  totals[lane] = total;
  workgroupBarrier();
  let sink = sink_of(batch, query, split);
  var most = max(highest, sink);
  for (var p = 0u; p < $SLICES * PARTS; p++) { most = max(most, highests[p * $TILE_Q + row]); }
  let level = select(most, 0f, is_lowest(most));
  var all = exp(sink - level);
  for (var p = 0u; p < $SLICES * PARTS; p++) {
    all += totals[p * $TILE_Q + row] * exp(highests[p * $TILE_Q + row] - level);
  }
  if (part == 0u) { rows[slice * Q4 + row / 4u][row % 4u] = factor_of(highest, level, all); }
  if (part == 0u && slice == 0u && top + row < $rows) { store_level(batch, top + row, split, most, all); }
  workgroupBarrier();
  // Results through workgroup memory, 4 THREADS_X elements of a query at a time: neighbouring invocations store neighbours, and
  // what is fused into the store is in the text once. Queries are rotated so that they do not all lie in one bank.
  for (var group = 0u; group < $VALUES4; group++) {
    for (var s = 0u; s < $SLICES; s++) {
      workgroupBarrier();
      if (slice == s) {
#for c 4 * VALUES4
        if (group == #(#c // 4)u) {
          let d = tx * 4u + #(#c % 4)u;
#for r ROWS4
          {
            let by = rows[slice * Q4 + ty * $ROWS4 + #ru];
            let at = d * Q4 + (ty * $ROWS4 + #ru + d) % Q4;
            let part_sum = select(sum#c_#r * by, vec4f(), by < vec4f());
            if (s == 0u) { scores[at] = part_sum; } else { scores[at] += part_sum; }
          }
#end
        }
#end
      }
    }
    workgroupBarrier();
    for (var e = lane; e < $TILE_Q * 4u * $THREADS_X; e += $WG) {
      let d = e % (4u * $THREADS_X);
      let i = e / (4u * $THREADS_X);
      let element = group * 4u * $THREADS_X + d;
      if (top + i < $rows && element < $VALUE_SIZE) {
        store(batch, top + i, split, element, scores[d * Q4 + (i / 4u + d) % Q4][i % 4u]);
      }
    }
  }
}
