// `flash_attention` with subgroup matrices. The sums of both products are f32, and so is the softmax between them. A workgroup
// has TILE_Q queries, ROWS for each of its subgroups, and TILE_K keys at a time. Workgroup memory holds the elements of the keys,
// and then their values.
//
// Scores pass through workgroup memory to PARTS invocations of a subgroup that share a row. They return to the memory of that row
// as weights in halves. Sums are relative to a `base` of each row, one of its scores. The base rises only to a score that is
// higher by RISE. Scaling the sums down requires a pass through memory, since no invocation can tell which rows its sums belong
// to.
//
// Weights are at most exp(RISE), which fits in a half. The total is that of the halves, so a row with a single key has no
// rounding error.
#include flash_span
const ROWS = $BLOCKS_M * $UNIT_M;
const PARTS = $LANES / ROWS;
const SHARE_K = $TILE_K / PARTS;  // keys of an invocation
const Q_STRIDE = $DEPTH * $UNIT_K + $PAD;
const V_STRIDE = $VALUES * $UNIT_N + $PAD;
const S_STRIDE = $TILE_K + 4u;
const Q_EIGHTS = $DEPTH * $UNIT_K / 8u;  // of a query or key
const V_EIGHTS = $VALUES * $UNIT_N / 8u;
// In halves. If queries are held, their memory is used only at the beginning, except by `matrices_plain`, which reads them there.
const KEYS_AT = 2u * $TILE_Q * S_STRIDE;
const TILE_SIZE = $TILE_K * max(Q_STRIDE, V_STRIDE);
const Q_SIZE = $TILE_Q * Q_STRIDE;
#if MATRIX_UNITS and QUERIES_HELD
const Q_AT = 0u;
const MEMORY = max(KEYS_AT + TILE_SIZE, Q_SIZE) / 8u;
#else
const Q_AT = KEYS_AT + TILE_SIZE;
const MEMORY = (Q_AT + Q_SIZE) / 8u;
#end
const STAGE = $STAGED * $UNIT_N;  // elements of results in workgroup memory at a time, in place of scores
const RISE = #(RISE)f;

#if MATRIX_UNITS
#include matrices_units
#else
#include matrices_plain
#end
#if BROWSER
#include matrices_within
#end
var<workgroup> rows: array<f32, $TILE_Q>;  // a factor for each query
var<workgroup> raised: u32;  // whether sums must be scaled down
#if PARTS > 1
var<workgroup> shares: array<f32, $WG>;
#end

fn is_lowest(v: f32) -> bool { return bitcast<u32>(v) == 0xff800000u; }
fn put_four(at: u32, v: vec4f) { put_eight(2u * at, bitcast<vec4<u32>>(v)); }
fn sum_of(it: vec4f) -> f32 { return dot(it, vec4f(1f)); }
fn halves_of(it: vec4<u32>) -> vec4f {
  return vec4f(unpack2x16float(it.x), unpack2x16float(it.y)) + vec4f(unpack2x16float(it.z), unpack2x16float(it.w));
}

// The e-th eight of a tile of queries, keys or values. Neighbours fetch neighbours in memory.
#if Q_ALONG
#inline q_row(e) (e) / Q_EIGHTS
#inline q_element(e) (e) % Q_EIGHTS * 8u
#else
#inline q_row(e) (e) % $TILE_Q
#inline q_element(e) (e) / $TILE_Q * 8u
#end
#if K_ALONG
#inline k_row(e) (e) / Q_EIGHTS
#inline k_element(e) (e) % Q_EIGHTS * 8u
#else
#inline k_row(e) (e) % $TILE_K
#inline k_element(e) (e) / $TILE_K * 8u
#end
#if V_ALONG
#inline v_row(e) (e) / V_EIGHTS
#inline v_element(e) (e) % V_EIGHTS * 8u
#else
#inline v_row(e) (e) % $TILE_K
#inline v_element(e) (e) / $TILE_K * 8u
#end
fn query_part(batch: u32, top: u32, e: u32) -> q_at8_words_t {
  return q_at8_words(batch, min(top + q_row(e), $rows - 1u), min(q_element(e), $SIZE - 8u));
}
fn key_part(batch: u32, first: u32, e: u32) -> k_at8_words_t {
  return k_at8_words(batch, min(first + k_row(e), $keys - 1u), min(k_element(e), $SIZE - 8u));
}
fn value_part(batch: u32, first: u32, e: u32) -> v_at8_words_t {
  return v_at8_words(batch, min(first + v_row(e), $keys - 1u), min(v_element(e), $VALUE_SIZE - 8u));
}

// The range of keys that a query at a position sees.
fn visible_at(position: i32, end: u32) -> vec2<u32> {
  if (!$BANDED) { return vec2<u32>(0u, end); }
  let found = vec2<i32>(position - i32($left), position + i32($right) + 1);
  return vec2<u32>(clamp(found, vec2<i32>(), vec2<i32>(i32(end))));
}

// The scores of a query and four keys, or the lowest number if a key is not visible.
fn seen(batch: u32, row: u32, key: u32, visible: vec2<u32>, products: vec4f) -> vec4f {
  var scores = vec4f(float_bits(0xff800000u));
#for e 4
  if (key + #eu >= visible.x && key + #eu < visible.y) { scores[#e] = score_of(batch, row, key + #eu, products[#e]); }
#end
  return scores;
}

fn store4(batch: u32, row: u32, split: u32, d: u32, v: vec4f) {
#if VALUES_FIRST and not SPLIT
#for e 4
  y_put(batch, d + #eu, row, v[#e]);
#end
#else
#if SPLIT
  y_put4(batch, row, split, d, v);
#else
  y_put4(batch, row, d, v);
#end
#end
}

fn kernel(w: u32, lane: u32) {
  let split = w % $splits;
  var batch = w / $splits / $tiles_q;
  var tile = w / $splits % $tiles_q;
#if BANDED
  // The last queries of all heads come first. They see the most keys and take longest.
  if ($steps % $TILE_Q == 0u) {
    let places = $steps / $TILE_Q;
    let heads = $tiles_q / places;
    let at = w / $splits;
    batch = at / heads % $batches;
    tile = at % heads * places + places - 1u - at / heads / $batches;
  }
#end
  let top = tile * $TILE_Q;
  let last = min(top + $TILE_Q, $rows) - 1u;
  let span = span_of(batch, top, last, split, $TILE_K);
  begin_matrices(lane);
  // As one of PARTS invocations that process the scores of a query.
  let group_row = lane / $LANES * ROWS;
  let my_row = group_row + lane % ROWS;
  let part = lane % $LANES / ROWS;
  let row = min(top + my_row, $rows - 1u);
  let visible = visible_at(span.start + i32(row % $steps), span.end);
  // Keys that all queries see.
  let together = top / $steps == last / $steps;
  let lowest = span.start + select(0, i32(top % $steps), together);
  let highest = span.start + select(i32($steps) - 1, i32(last % $steps), together);
  let by_all = vec2<u32>(visible_at(highest, span.end).x, visible_at(lowest, span.end).y);

  if (lane == 0u) { raised = 0u; }
#for l Q_LOADS
  {
    let e = lane + #lu * $WG;
    if ($Q_EVENLY || e < $TILE_Q * Q_EIGHTS) {
      let v = q_at8_of(query_part(batch, top, e));
      put_eight(Q_AT + q_row(e) * Q_STRIDE + q_element(e), select(vec4<u32>(), v, q_element(e) < $SIZE));
    }
  }
#end
  workgroupBarrier();
#if QUERIES_HELD
#for i BLOCKS_M
#for s DEPTH
  let query#i_#s = load_left(Q_AT + (group_row + #iu * $UNIT_M) * Q_STRIDE + #su * $UNIT_K, Q_STRIDE);
#end
#end
#end
  var base = float_bits(0xff800000u);
  var total = 0f;
#for i BLOCKS_M
#for c VALUES
  var sum#i_#c: matrix_sum;
#end
#end
#for l K_LOADS
  var next_k#l = key_part(batch, span.begin, lane + #lu * $WG);
#end
  for (var first = span.begin; first < span.end; first += $TILE_K) {
    workgroupBarrier();
#for l K_LOADS
    {
      let e = lane + #lu * $WG;
      if ($K_EVENLY || e < $TILE_K * Q_EIGHTS) {
        let v = select(vec4<u32>(), k_at8_of(next_k#l), k_element(e) < $SIZE);
        put_eight(KEYS_AT + k_row(e) * Q_STRIDE + k_element(e), v);
      }
    }
#end
    workgroupBarrier();
#for l V_LOADS
    let next_v#l = value_part(batch, first, lane + #lu * $WG);
#end
#for i BLOCKS_M
#for c UNITS_K
    var score#i_#c = matrix_sum();
#end
#end
#for s DEPTH
    {
#for i BLOCKS_M
#if QUERIES_HELD
      let left#i = query#i_#s;
#else
      let left#i = load_left(Q_AT + (group_row + #iu * $UNIT_M) * Q_STRIDE + #su * $UNIT_K, Q_STRIDE);
#end
#end
#for c UNITS_K
      let right#c = load_right_across(KEYS_AT + #cu * $UNIT_N * Q_STRIDE + #su * $UNIT_K, Q_STRIDE);
#end
#for i BLOCKS_M
#for c UNITS_K
      score#i_#c = multiply_add(left#i, right#c, score#i_#c);
#end
#end
    }
#end
#for i BLOCKS_M
#for c UNITS_K
    put_matrix((group_row + #iu * $UNIT_M) * S_STRIDE + #cu * $UNIT_N, score#i_#c, S_STRIDE);
#end
#end
    workgroupBarrier();
    // Zeros after the last key: a weight of zero would not remove an infinity or NaN there.
#for l V_LOADS
    {
      let e = lane + #lu * $WG;
      if ($V_EVENLY || e < $TILE_K * V_EIGHTS) {
        let v = select(vec4<u32>(), v_at8_of(next_v#l), first + v_row(e) < span.end && v_element(e) < $VALUE_SIZE);
        put_eight(KEYS_AT + v_row(e) * V_STRIDE + v_element(e), v);
      }
    }
#end
#for l K_LOADS
    next_k#l = key_part(batch, first + $TILE_K, lane + #lu * $WG);
#end
    let at = my_row * S_STRIDE + part * SHARE_K;
    let key = first + part * SHARE_K;
#if HELD
#for j FOURS
    var s#j = result_four(at + 4u * #ju);
#end
    if (first >= by_all.x && first + $TILE_K <= by_all.y) {
#for j FOURS
      s#j = vec4f(#[score_of(batch, row, key + #(4 * #j + #e)u, s#j[#e]) for e 4]);
#end
    } else {
#for j FOURS
      s#j = seen(batch, row, key + 4u * #ju, visible, s#j);
#end
    }
#else
    for (var j = 0u; j < SHARE_K; j += 4u) {
      let products = result_four(at + j);
      put_four(at + j, seen(batch, row, key + j, visible, products));
    }
#for j FOURS
    let s#j = result_four(at + 4u * #ju);
#end
#end
    // The maximum may lose a NaN among the scores. The sum does not, and becomes the result of the row.
    var highest4 = s0;
#for j FOURS
    highest4 = max(highest4, s#j);
#end
    var now = max(max(highest4.x, highest4.y), max(highest4.z, highest4.w));
#if PARTS > 1
    shares[lane] = now;
    workgroupBarrier();
    for (var p = 0u; p < PARTS; p++) { now = max(now, shares[lane / $LANES * $LANES + p * ROWS + lane % ROWS]); }
#end
    let rises = is_lowest(base) || now > base + RISE;
    if (rises && !is_lowest(base)) { raised = 1u; }
    let next = select(base, now, rises);
    let level = select(next, 0f, is_lowest(next));
    let down = select(1f, exp(base - level), rises);
    if (workgroupUniformLoad(&raised) != 0u) {
#for t STAGES
#for i BLOCKS_M
#for c STAGED
      put_matrix((group_row + #iu * $UNIT_M) * S_STRIDE + #cu * $UNIT_N, sum#i_#(#t * STAGED + #c), S_STRIDE);
#end
#end
      workgroupBarrier();
      for (var d = 4u * part; d < STAGE; d += 4u * PARTS) {
        let four = result_four(my_row * S_STRIDE + d);
        put_four(my_row * S_STRIDE + d, four * down);
      }
      workgroupBarrier();
#for i BLOCKS_M
#for c STAGED
      sum#i_#(#t * STAGED + #c) = load_sum((group_row + #iu * $UNIT_M) * S_STRIDE + #cu * $UNIT_N, S_STRIDE);
#end
#end
      workgroupBarrier();
#end
      if (lane == 0u) { raised = 0u; }
    }
    var added = vec4f();
#for j EIGHTS
    {
      let weights = eight_halves(exp(s#(2 * #j) - level), exp(s#(2 * #j + 1) - level));
      put_eight(2u * my_row * S_STRIDE + part * SHARE_K + 8u * #ju, weights);
      added += halves_of(weights);
    }
#end
    total = total * down + sum_of(added);
    base = next;
    workgroupBarrier();
#for s STEPS_K
    {
#for i BLOCKS_M
      let left#i = load_left(2u * (group_row + #iu * $UNIT_M) * S_STRIDE + #su * $UNIT_K, 2u * S_STRIDE);
#end
#for c VALUES
      let right#c = load_right(KEYS_AT + #su * $UNIT_K * V_STRIDE + #cu * $UNIT_N, V_STRIDE);
#end
#for i BLOCKS_M
#for c VALUES
      sum#i_#c = multiply_add(left#i, right#c, sum#i_#c);
#end
#end
    }
#end
  }

#if PARTS > 1
  workgroupBarrier();
  shares[lane] = total;
  workgroupBarrier();
  total = 0f;
  for (var p = 0u; p < PARTS; p++) { total += shares[lane / $LANES * $LANES + p * ROWS + lane % ROWS]; }
#end
  let sink = sink_of(batch, row, split);
  let most = max(base, sink);
  let level = select(most, 0f, is_lowest(most));
  var all = total * exp(base - level);
#if SINK
  all += exp(sink - level);
#end
  if (part == 0u) {
    rows[my_row] = factor_of(base, level, all);
    if (top + my_row < $rows) { store_level(batch, row, split, most, all, span.parts); }
  }
  // Results pass through workgroup memory: the text has the fused maps once, and neighbours store neighbours. The bound depends
  // on the rows so that no compiler unrolls the loop.
  let stages = min($rows, 1u) * $STAGES;
  for (var stage = 0u; stage < stages; stage++) {
    workgroupBarrier();
#for t STAGES
    if (stage == #tu) {
#for i BLOCKS_M
#for c STAGED
      put_matrix((group_row + #iu * $UNIT_M) * S_STRIDE + #cu * $UNIT_N, sum#i_#(#t * STAGED + #c), S_STRIDE);
#end
#end
    }
#end
    workgroupBarrier();
    for (var e = lane; e < $TILE_Q * STAGE / 4u; e += $WG) {
      let d = e % (STAGE / 4u) * 4u;
      let i = e / (STAGE / 4u);
      if (top + i < $rows && stage * STAGE + d < $VALUE_SIZE) {
        let four = result_four(i * S_STRIDE + d);
        store4(batch, top + i, split, stage * STAGE + d, select(four * rows[i], vec4f(), rows[i] < 0f));
      }
    }
  }
}
