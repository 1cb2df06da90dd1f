// Attention without its matrix of scores: y = softmax(scored(q k^T)) v, for TILE_Q queries of a workgroup and TILE_K keys at a
// time. The sums are scaled down whenever a higher score occurs (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018; Dao et al., "FlashAttention", 2022). So memory is linear in queries and keys.
//
// An invocation accumulates 4 ROWS4 queries by 4 COLUMNS4 keys of a tile of scores, then by 4 VALUES4 elements of results; a vec4
// is four queries. SLICES groups of invocations take turns in the tiles of keys, which keeps few queries parallel.
//
// Scores pass through workgroup memory to PARTS invocations that share four rows. They are HELD in separate variables if
// `scored`, the maps between the products, has few operations; otherwise a loop computes them. The sums of an invocation are
// separate variables too, and both products are unrolled by UNROLLED steps.
//
// If neighbours in memory are elements of one query or key, Q_LANES or K_LANES invocations fetch it together. A load of a
// subgroup then reaches few cache lines. `exchanged` determines where they store it.
#include flash_span
#include flash_store
#include exchanged
const THREADS_Y = $TILE_Q / (4u * $ROWS4);
const THREADS = $THREADS_X * THREADS_Y;  // per slice
const TILE_K = $THREADS_X * 4u * $COLUMNS4;
const Q4 = $TILE_Q / 4u;
const K4 = TILE_K / 4u;
const PARTS = THREADS / Q4;
const V4 = $THREADS_X * $VALUES4;
const LAST4 = ($VALUE_SIZE - 1u) / 4u * 4u;
const Q_LANES = #(LANES if Q_ALONG else 1)u;
const K_LANES = #(LANES if K_ALONG else 1)u;
const SCORES = max(TILE_K, 4u * $THREADS_X) * Q4;
// Per slice: elements of q, then of k, $DEPTH at a time, with queries or keys innermost. The same memory later holds scores, keys
// by queries, and finally results by queries. After these are $KEYS rows of v, or the values of each invocation for four
// queries.
const AREA = max((Q4 + K4) * $DEPTH, SCORES + max($KEYS * V4, THREADS));

alias tile_t = f32;
const TILES = $SLICES * AREA;
#include shared_vectors
var<workgroup> rows: array<vec4f, $SLICES * Q4>;  // a factor for each query

// The index of element d of four queries or keys. `_in_row` is the part within its row, which is the same for four elements. The
// bounds only serve the proofs of browsers, here as below.
#if Q_ALONG and LANES > 1
#inline q_in_row(d, i4) min(exchange((i4), (d) / 4u, Q_LANES, $Q_BLOCK), Q4 - 1u)
#else
#inline q_in_row(d, i4) (i4)
#end
#if K_ALONG and LANES > 1
#inline k_in_row(d, j4) min(exchange((j4), (d) / 4u, K_LANES, $K_BLOCK), K4 - 1u)
#else
#inline k_in_row(d, j4) (j4)
#end

// The next tile is fetched while the current one is multiplied, without a branch, and then stored in workgroup memory, with zeros
// after the last element. Four e belongs to row `row_of` of a tile, and begins with element `element_of`.
#inline row_of(e, lanes, rows) (e) / lanes % rows
#inline element_of(e, lanes, rows) ((e) / (lanes * rows) * lanes + (e) % lanes) * 4u
fn before_end(d: u32, fetched: vec4f) -> vec4f {
  return select(vec4f(), fetched, vec4<bool>($SIZE % $DEPTH == 0u) | (vec4u(d, d + 1u, d + 2u, d + 3u) < vec4u($SIZE)));
}
fn query_part(batch: u32, top: u32, e: u32, depth: u32) -> vec4f {
  let row = min(top + row_of(e, Q_LANES, $TILE_Q), $rows - 1u);
  return q_at4(batch, row, min(depth + element_of(e, Q_LANES, $TILE_Q), ($SIZE - 1u) / 4u * 4u));
}
fn key_part(batch: u32, first: u32, e: u32, depth: u32) -> vec4f {
  let key = min(first + row_of(e, K_LANES, TILE_K), $keys - 1u);
  return k_at4(batch, key, min(depth + element_of(e, K_LANES, TILE_K), ($SIZE - 1u) / 4u * 4u));
}
fn value_part(batch: u32, first: u32, e: u32) -> vec4f {
  return v_at4(batch, min(first + e / V4, $keys - 1u), min(e % V4 * 4u, LAST4));
}

// The scores of four queries from `row` on and a key, or the lowest number if the key is not visible.
fn seen(batch: u32, row: u32, key: u32, span: Span, products: vec4f) -> vec4f {
  var scores = vec4f(float_bits(0xff800000u));
  if (key < span.end) {
#for e 4
    {
      let query = min(row + #eu, $rows - 1u);
      if (sees(span.start, query, key)) { scores[#e] = score_of(batch, query, key, products[#e]); }
    }
#end
  }
  return scores;
}

// The base that is subtracted from scores.
fn base_of(highest: vec4f) -> vec4f {
  return select(highest, vec4f(), bitcast<vec4u>(highest) == vec4u(0xff800000u));
}

fn kernel(w: u32, lane: u32) {
  let split = w % $splits;
  let batch = w / $splits / $tiles_q;
  let top = w / $splits % $tiles_q * $TILE_Q;
  let span = span_of(batch, top, min(top + $TILE_Q, $rows) - 1u, split, TILE_K);
  let slice = #("0u" if SLICES == 1 else "lane % $WG / THREADS");
  let me = lane % THREADS;
  let tx = me % $THREADS_X;
  let ty = me / $THREADS_X;
  let q_base = slice * AREA;
  let k_base = q_base + Q4 * $DEPTH;
  let s_base = slice * AREA;
  let v_base = s_base + SCORES;
  // As one of PARTS invocations that process the scores of four queries.
  let row4 = me % Q4;
  let part = me / Q4;
  let row = top + 4u * row4;

  var highest = vec4f(float_bits(0xff800000u));
  var total = vec4f();
#for c 4 * VALUES4
#for r ROWS4
  var sum#c_#r = vec4f();
#end
#end
#for l Q_LOADS
  var next_q#l = query_part(batch, top, me + #lu * THREADS, 0u);
#end
#for l K_LOADS
  var next_k#l = key_part(batch, span.begin + slice * TILE_K, me + #lu * THREADS, 0u);
#end
#for l V_LOADS
  var next_v#l = value_part(batch, span.begin + slice * TILE_K, me + #lu * THREADS);
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
#for l Q_LOADS
      #("" if Q_EVENLY else "if (me + #lu * THREADS < $TILE_Q * $DEPTH / 4u) ") {
        let four = #("me + #lu * THREADS" if Q_EVENLY else "min(me + #lu * THREADS, $TILE_Q * $DEPTH / 4u - 1u)");
        let i = row_of(four, Q_LANES, $TILE_Q);
        let d = element_of(four, Q_LANES, $TILE_Q);
        let v = before_end(depth + d, next_q#l);
        let at = q_base + d * Q4 + q_in_row(d, i / 4u);
#for e 4
        put_part(at + #eu * Q4, i % 4u, v[#e]);
#end
      }
#end
#for l K_LOADS
      #("" if K_EVENLY else "if (me + #lu * THREADS < TILE_K * $DEPTH / 4u) ") {
        let four = #("me + #lu * THREADS" if K_EVENLY else "min(me + #lu * THREADS, TILE_K * $DEPTH / 4u - 1u)");
        let j = row_of(four, K_LANES, TILE_K);
        let d = element_of(four, K_LANES, TILE_K);
        let v = before_end(depth + d, next_k#l);
        let at = k_base + d * K4 + k_in_row(d, j / 4u);
#for e 4
        put_part(at + #eu * K4, j % 4u, v[#e]);
#end
      }
#end
      workgroupBarrier();
      // After the last elements of this tile, the first ones of the next tile.
      let last = depth + $DEPTH >= $SIZE;
      let ahead = select(depth + $DEPTH, 0u, last);
      let ahead_first = select(first, first + $SLICES * TILE_K, last);
#for l Q_LOADS
      next_q#l = query_part(batch, top, me + #lu * THREADS, ahead);
#end
#for l K_LOADS
      next_k#l = key_part(batch, ahead_first, me + #lu * THREADS, ahead);
#end
      for (var step = 0u; step < $DEPTH / $UNROLLED; step++) {
        let d = step * $UNROLLED;
#for u UNROLLED
#if #u % 4 == 0
#for r ROWS4
        let q_at#u_#r = q_base + q_in_row(d + #uu, ty * $ROWS4 + #ru);
#end
#for c COLUMNS4
        let k_at#u_#c = k_base + k_in_row(d + #uu, #cu * $THREADS_X + tx);
#end
#end
        {
          let element = d + #uu;
#for r ROWS4
          let at#r = q_at#(#u // 4 * 4)_#r + element * Q4;
          let q#r = vector(at#r);
#end
#for c COLUMNS4
          let at_k#c = k_at#(#u // 4 * 4)_#c + element * K4;
          let k#c = vector(at_k#c);
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
    workgroupBarrier();
#for c 4 * COLUMNS4
#for r ROWS4
    let at#c_#r = s_base + ((#(#c // 4)u * $THREADS_X + tx) * 4u + #(#c % 4)u) * Q4 + ty * $ROWS4 + #ru;
    put_vector(at#c_#r, score#c_#r);
#end
#end
    workgroupBarrier();
    // The maximum may lose a NaN among the scores. The sum does not, and becomes the result of the row.
    var now = highest;
#if HELD
#for j 4 * ROWS4 * COLUMNS4
    let at#j = s_base + (part + #ju * PARTS) * Q4 + row4;
    let s#j = seen(batch, row, first + part + #ju * PARTS, span, vector(at#j));
    now = max(now, s#j);
#end
#else
    for (var step = 0u; step < TILE_K / PARTS; step++) {
      let j = part + step * PARTS;
      let at = s_base + j * Q4 + row4;
      let s = seen(batch, row, first + j, span, vector(at));
      put_vector(at, s);
      now = max(now, s);
    }
#end
    let at_me = v_base + me;
    put_vector(at_me, now);
    workgroupBarrier();
    for (var p = 0u; p < PARTS; p++) { now = max(now, vector(v_base + p * Q4 + row4)); }
    let base = base_of(now);
    let factor = exp(highest - base);
    var added = vec4f();
#if HELD
#for j 4 * ROWS4 * COLUMNS4
    let weight#j = exp(s#j - base);
    put_vector(at#j, weight#j);
    added += weight#j;
#end
#else
    for (var step = 0u; step < TILE_K / PARTS; step++) {
      let at = s_base + (part + step * PARTS) * Q4 + row4;
      let weight = exp(vector(at) - base);
      put_vector(at, weight);
      added += weight;
    }
#end
    total = total * factor + added;
    highest = now;
    if (part == 0u) { rows[slice * Q4 + row4] = factor; }
    workgroupBarrier();
#for r ROWS4
    let down#r = rows[slice * Q4 + ty * $ROWS4 + #ru];
#for c 4 * VALUES4
    sum#c_#r *= down#r;
#end
#end
    for (var part_of_tile = 0u; part_of_tile < TILE_K / $KEYS; part_of_tile++) {
      let behind = part_of_tile * $KEYS;
      workgroupBarrier();
      // Zeros after the last key: a weight of zero would not remove an infinity or NaN there.
#for l V_LOADS
      {
        let e = me + #lu * THREADS;
        let v = select(vec4f(), next_v#l, first + behind + e / V4 < span.end);
        let at = v_base + #("e" if V_EVENLY else "min(e, $KEYS * V4 - 1u)");
        #("" if V_EVENLY else "if (e < $KEYS * V4) ") { put_vector(at, v); }
      }
#end
      workgroupBarrier();
      let ahead = select(first + behind + $KEYS, first + $SLICES * TILE_K, behind + $KEYS >= TILE_K);
#for l V_LOADS
      next_v#l = value_part(batch, ahead, me + #lu * THREADS);
#end
      for (var step = 0u; step < $KEYS / $UNROLLED; step++) {
        let j = step * $UNROLLED;
#for u UNROLLED
        {
#for r ROWS4
          let at#r = s_base + (behind + j + #uu) * Q4 + ty * $ROWS4 + #ru;
          let weight#r = vector(at#r);
#end
#for c VALUES4
          let at_v#c = v_base + (j + #uu) * V4 + #cu * $THREADS_X + tx;
          let v#c = vector(at_v#c);
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
  // Combines the totals of the invocations of a row, in all slices.
  workgroupBarrier();
  let at_total = s_base + me;
  let at_highest = v_base + me;
  put_vector(at_total, total);
  put_vector(at_highest, highest);
  workgroupBarrier();
  let sink = vec4f(#[sink_of(batch, min(row + #eu, $rows - 1u), split) for e 4]);
  var most = max(highest, sink);
  for (var turn = 0u; turn < $SLICES * PARTS; turn++) {
    let one = row4 + turn * Q4;
    most = max(most, vector(one / THREADS * AREA + SCORES + one % THREADS));
  }
  let level = base_of(most);
#if SINK
  var all = exp(sink - level);
#else
  var all = vec4f();
#end
  for (var turn = 0u; turn < $SLICES * PARTS; turn++) {
    let one = row4 + turn * Q4;
    let own = one / THREADS * AREA + one % THREADS;
    all += vector(own) * exp(vector(own + SCORES) - level);
  }
  if (part == 0u) {
    rows[slice * Q4 + row4] = vec4f(#[factor_of(highest[#e], level[#e], all[#e]) for e 4]);
#for e 4
    if (slice == 0u && row + #eu < $rows) { store_level(batch, row + #eu, split, most[#e], all[#e], span.parts); }
#end
  }
  workgroupBarrier();
  // Results pass through workgroup memory, 4 THREADS_X elements of a query at a time. Neighbouring invocations store neighbours,
  // and the text has the fused maps once. Queries are rotated so that they are in different banks.
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
            if (s == 0u) {
              put_vector(at, part_sum);
            } else {
              let both = vector(at) + part_sum;
              put_vector(at, both);
            }
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
        store(batch, top + i, split, element, vector(d * Q4 + (i / 4u + d) % Q4)[i % 4u]);
      }
    }
  }
}
