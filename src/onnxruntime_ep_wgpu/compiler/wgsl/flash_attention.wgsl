// Attention without its matrix of scores: y = softmax(scored(q k^T)) v, for TILE_Q queries of a workgroup and TILE_K keys at
// a time. What was summed is scaled down whenever a higher score is met (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018; Dao et al., "FlashAttention", 2022), so memory is linear in queries and keys.
//
// An invocation sums 4 ROWS4 queries by 4 COLUMNS4 keys of a tile of scores, then by 4 VALUES4 elements of results; a vec4
// is four queries. SLICES groups of invocations take turns in the tiles of keys, which keeps few queries parallel. Scores
// go through workgroup memory to where PARTS invocations share four rows: HELD in variables of their own where `scored`, the maps
// between the products, are few operations; otherwise in a loop. What an invocation sums is in variables of their own too, and
// UNROLLED steps of both products are written out.
//
// Where neighbours in memory are elements of one query or key, Q_LANES or K_LANES invocations fetch it together, so that a load of
// a subgroup reaches few lines of memory. `exchanged` says where they store it.
#include flash_span
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
// Per slice: elements of q then k, $DEPTH at a time and queries or keys fastest; in their place scores, keys by queries, in the end
// results by queries; and behind these $KEYS rows of v, or what each invocation has for four queries.
const AREA = max((Q4 + K4) * $DEPTH, SCORES + max($KEYS * V4, THREADS));

alias tile_t = f32;
const TILES = $SLICES * AREA;
#include shared_vectors
var<workgroup> rows: array<vec4f, $SLICES * Q4>;  // a factor for each query

// Where element d of four queries, or keys, is.
fn q_place(d: u32, i4: u32) -> u32 {
  return d * Q4 + exchanged(i4, d / 4u, Q_LANES, $Q_BLOCK);
}
fn k_place(d: u32, j4: u32) -> u32 {
  return d * K4 + exchanged(j4, d / 4u, K_LANES, $K_BLOCK);
}

// What a tile needs is fetched while the one before is multiplied, without a branch, and goes to workgroup memory by `put`: zeros
// from the last element on. `place_of`: the row of a tile that has the e-th four, and which elements these are.
fn place_of(e: u32, lanes: u32, rows: u32) -> vec2u {
  return vec2u(e / lanes % rows, (e / (lanes * rows) * lanes + e % lanes) * 4u);
}
fn put(at: u32, stride: u32, part: u32, d: u32, fetched: vec4f) {
  let v = select(vec4f(), fetched, vec4<bool>($SIZE % $DEPTH == 0u) | (vec4u(d, d + 1u, d + 2u, d + 3u) < vec4u($SIZE)));
  put_component(at, part, v.x);
  put_component(at + stride, part, v.y);
  put_component(at + 2u * stride, part, v.z);
  put_component(at + 3u * stride, part, v.w);
}
fn put_query(base: u32, e: u32, depth: u32, fetched: vec4f) {
  let p = place_of(e, Q_LANES, $TILE_Q);
  put(base + q_place(p.y, p.x / 4u), Q4, p.x % 4u, depth + p.y, fetched);
}
fn put_key(base: u32, e: u32, depth: u32, fetched: vec4f) {
  let p = place_of(e, K_LANES, TILE_K);
  put(base + k_place(p.y, p.x / 4u), K4, p.x % 4u, depth + p.y, fetched);
}
fn query_part(batch: u32, top: u32, e: u32, depth: u32) -> vec4f {
  let p = place_of(e, Q_LANES, $TILE_Q);
  return q_at4(batch, min(top + p.x, $rows - 1u), min(depth + p.y, ($SIZE - 1u) / 4u * 4u));
}
fn key_part(batch: u32, first: u32, e: u32, depth: u32) -> vec4f {
  let p = place_of(e, K_LANES, TILE_K);
  return k_at4(batch, min(first + p.x, $keys - 1u), min(depth + p.y, ($SIZE - 1u) / 4u * 4u));
}
fn value_part(batch: u32, first: u32, e: u32) -> vec4f {
  return v_at4(batch, min(first + e / V4, $keys - 1u), min(e % V4 * 4u, LAST4));
}


// What scores of four queries from `row` on and a key are: the lowest number where it is not seen.
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

// What highest scores are subtracted as.
fn base_of(highest: vec4f) -> vec4f {
  return select(highest, vec4f(), bitcast<vec4u>(highest) == vec4u(0xff800000u));
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
  let q_base = slice * AREA;
  let k_base = q_base + Q4 * $DEPTH;
  let s_base = slice * AREA;
  let v_base = s_base + SCORES;
  // As one of PARTS that look at the scores of four queries.
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
      #("" if Q_EVENLY else "if (me + #lu * THREADS < $TILE_Q * $DEPTH / 4u) ") { put_query(q_base, me + #lu * THREADS, depth, next_q#l); }
#end
#for l K_LOADS
      #("" if K_EVENLY else "if (me + #lu * THREADS < TILE_K * $DEPTH / 4u) ") { put_key(k_base, me + #lu * THREADS, depth, next_k#l); }
#end
      workgroupBarrier();
      // After the last elements of this tile, the first ones of the next.
      let last = depth + $DEPTH >= $SIZE;
      let ahead = select(depth + $DEPTH, 0u, last);
      let ahead_first = select(first, first + $SLICES * TILE_K, last);
#for l Q_LOADS
      next_q#l = query_part(batch, top, me + #lu * THREADS, ahead);
#end
#for l K_LOADS
      next_k#l = key_part(batch, ahead_first, me + #lu * THREADS, ahead);
#end
      for (var d = 0u; d < $DEPTH; d += $UNROLLED) {
#for u UNROLLED
        {
#for r ROWS4
          let q#r = tile(q_base + q_place(d + #uu, ty * $ROWS4 + #ru));
#end
#for c COLUMNS4
          let k#c = tile(k_base + k_place(d + #uu, #cu * $THREADS_X + tx));
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
    put_tile(s_base + ((#(#c // 4)u * $THREADS_X + tx) * 4u + #(#c % 4)u) * Q4 + ty * $ROWS4 + #ru, score#c_#r);
#end
#end
    workgroupBarrier();
    // A NaN among the scores may get lost here. It does not in the sum, and is the result of its row then.
    var now = highest;
#if HELD
#for j 4 * ROWS4 * COLUMNS4
    let s#j = seen(batch, row, first + part + #ju * PARTS, span, tile(s_base + (part + #ju * PARTS) * Q4 + row4));
    now = max(now, s#j);
#end
#else
    for (var j = part; j < TILE_K; j += PARTS) {
      let at = s_base + j * Q4 + row4;
      let s = seen(batch, row, first + j, span, tile(at));
      put_tile(at, s);
      now = max(now, s);
    }
#end
    put_tile(v_base + me, now);
    workgroupBarrier();
    for (var p = 0u; p < PARTS; p++) { now = max(now, tile(v_base + p * Q4 + row4)); }
    let base = base_of(now);
    let factor = exp(highest - base);
    var added = vec4f();
#if HELD
#for j 4 * ROWS4 * COLUMNS4
    let weight#j = exp(s#j - base);
    put_tile(s_base + (part + #ju * PARTS) * Q4 + row4, weight#j);
    added += weight#j;
#end
#else
    for (var j = part; j < TILE_K; j += PARTS) {
      let weight = exp(tile(s_base + j * Q4 + row4) - base);
      put_tile(s_base + j * Q4 + row4, weight);
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
    for (var behind = 0u; behind < TILE_K; behind += $KEYS) {
      workgroupBarrier();
      // Zeros from the last key on, because nothing else is lost when it is multiplied by a weight of zero.
#for l V_LOADS
      {
        let e = me + #lu * THREADS;
        #("" if V_EVENLY else "if (e < $KEYS * V4) ") { put_tile(v_base + e, select(vec4f(), next_v#l, first + behind + e / V4 < span.end)); }
      }
#end
      workgroupBarrier();
      let ahead = select(first + behind + $KEYS, first + $SLICES * TILE_K, behind + $KEYS >= TILE_K);
#for l V_LOADS
      next_v#l = value_part(batch, ahead, me + #lu * THREADS);
#end
      for (var j = 0u; j < $KEYS; j += $UNROLLED) {
#for u UNROLLED
        {
#for r ROWS4
          let weight#r = tile(s_base + (behind + j + #uu) * Q4 + ty * $ROWS4 + #ru);
#end
#for c VALUES4
          let v#c = tile(v_base + (j + #uu) * V4 + #cu * $THREADS_X + tx);
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
  workgroupBarrier();
  put_tile(s_base + me, total);
  put_tile(v_base + me, highest);
  workgroupBarrier();
  let sink = vec4f(#[sink_of(batch, min(row + #eu, $rows - 1u), split) for e 4]);
  var most = max(highest, sink);
  for (var at = row4; at < $SLICES * THREADS; at += Q4) {
    most = max(most, tile(at / THREADS * AREA + SCORES + at % THREADS));
  }
  let level = base_of(most);
#if SINK
  var all = exp(sink - level);
#else
  var all = vec4f();
#end
  for (var at = row4; at < $SLICES * THREADS; at += Q4) {
    let own = at / THREADS * AREA + at % THREADS;
    all += tile(own) * exp(tile(own + SCORES) - level);
  }
  if (part == 0u) {
    rows[slice * Q4 + row4] = vec4f(#[factor_of(highest[#e], level[#e], all[#e]) for e 4]);
#for e 4
    if (slice == 0u && row + #eu < $rows) { store_level(batch, row + #eu, split, most[#e], all[#e], span.parts); }
#end
  }
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
            if (s == 0u) { put_tile(at, part_sum); } else { put_tile(at, tile(at) + part_sum); }
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
        store(batch, top + i, split, element, tile(d * Q4 + (i / 4u + d) % Q4)[i % 4u]);
      }
    }
  }
}
