// Matrix product y = a b of halves, or of signed bytes, with subgroup matrices. A workgroup computes TILE_M x TILE_N elements
// with tiles in workgroup memory. Each of its subgroups computes BLOCKS_M x BLOCKS_N matrices of UNIT_M x UNIT_N sums. The next
// tiles are fetched while the current ones are multiplied. With two BUFFERS they have separate memory, and a step has one
// barrier. For PACKED weights b (n, k) an invocation fetches RUN neighbours of a column, which are whole words, and converts them
// to halves.
//
// TOGETHER operands, which are 16 bytes, are loaded and stored at a time. Less memory is worth more than a second buffer, so
// results replace the tiles. For 4096 x 4096 x 4096 halves an H100 reaches 279 TFLOP/s with 19 KiB per workgroup and 190 with 38.
// With single stores of halves it reaches 163.
#default PARTED has("part_k")
const A_STRIDE = $TILE_K + $PAD;
const A_SIZE = $TILE_M * A_STRIDE;
#if PACKED or TRANSPOSED
const B_STRIDE = $TILE_K + $PAD;
const TILES_SIZE = A_SIZE + $TILE_N * B_STRIDE;
#else
const B_STRIDE = $TILE_N + $PAD;
const TILES_SIZE = A_SIZE + $TILE_K * B_STRIDE;
#end
const B_RUN = #(4 * RUN4 if PACKED else TOGETHER)u;
const A_PARTS = $TILE_M * $TILE_K / $TOGETHER;
const B_PARTS = $TILE_N * $TILE_K / B_RUN;
const STAGE_ROWS = $STAGED_M * $UNIT_M;
const STAGE_STRIDE = $STAGED * $UNIT_N + 4u;
const STAGE_FOURS = $STAGED * $UNIT_N / 4u;
const MEMORY = max($BUFFERS * TILES_SIZE / $TOGETHER, $RESULTS / 4u);  // in units of 16 bytes

#if MATRIX_UNITS
#include matrices_units
#else
#include matrices_plain
#end
#if BROWSER
#include matrices_within
#end

// 16 bytes along k from column `k` on, with zeros past the end of k, whatever the memory contains there.
fn before_end(v: vec4<u32>, k: u32) -> vec4<u32> {
  if ($K_WHOLE) { return v; }
  if ($K_TOGETHER) { return select(vec4<u32>(), v, k < $k); }
#if TOGETHER == 16
  let places = vec4u(k, k + 4u, k + 8u, k + 12u);
  let bytes = min(vec4u(4u), max(vec4u($k), places) - places);
  return v & select((vec4u(1u) << (8u * (bytes & vec4u(3u)))) - 1u, vec4u(0xffffffffu), bytes == vec4u(4u));
#else
  let at = vec4u(k, k + 2u, k + 4u, k + 6u);
  let both = select(vec4u(0xffffu), vec4u(0xffffffffu), at + 1u < vec4u($k));
  return v & select(vec4u(), both, at < vec4u($k));
#end
}

// Loads are clamped to the end of k, so that no branch separates them. `before_end` inserts zeros at the store.
fn a_part(batch: u32, m: u32, k: u32) -> a_at#(TOGETHER)_words_t {
  return a_at#(TOGETHER)_words(batch, m, min(k, ($k - 1u) / $TOGETHER * $TOGETHER));
}
#if PACKED
fn b_part(batch: u32, k: u32, n: u32) -> b_run_words_t {
  return b_run_words(batch, n, min(k, ($k - 1u) / B_RUN * B_RUN));
}
#else
fn b_part(batch: u32, k: u32, n: u32) -> b_at#(TOGETHER)_words_t {
#if TRANSPOSED
  return b_at#(TOGETHER)_words(batch, n, min(k, ($k - 1u) / $TOGETHER * $TOGETHER));
#else
  return b_at#(TOGETHER)_words(batch, min(k, $k - 1u), n);
#end
}
#end

fn kernel(w: u32, lane: u32) {
  let count = $tiles_m * $tiles_n;
  let place = w / count;
#if PARTED
  // A part of k, which is whole tiles except in the last part. Results of different parts are separate, like batches.
  let batch = place % $batches;
  let begin = place / $batches * $part_k;
  let k_end = min(begin + $part_k, $k);
#else
  let batch = place;
  let begin = 0u;
  let k_end = $k;
#end
#include tile_of

  begin_matrices(lane);
  let group = lane / $LANES;
  let my_row = group / $GROUPS_N * ($BLOCKS_M * $UNIT_M);
  let my_column = group % $GROUPS_N * ($BLOCKS_N * $UNIT_N);
  let last = ($n - 1u) / $TOGETHER * $TOGETHER;
#for i BLOCKS_M
#for j BLOCKS_N
  var sum#i_#j: matrix_sum;
#end
#end
  // The source and destination of this invocation's parts of the tiles. If the parts are uneven, several invocations have the
  // last one.
#for l A_LOADS
  let a_e#l = min(lane + #lu * $WG, A_PARTS - 1u);
#if ALONG
  let a_row#l = a_e#l / ($TILE_K / $TOGETHER);
  let a_column#l = a_e#l % ($TILE_K / $TOGETHER) * $TOGETHER;
#else
  let a_row#l = a_e#l % $TILE_M;
  let a_column#l = a_e#l / $TILE_M * $TOGETHER;
#end
  let a_from#l = min(row + a_row#l, $m - 1u);
  var next_a#l = a_part(batch, a_from#l, begin + a_column#l);
#end
#for l B_LOADS
  let b_e#l = min(lane + #lu * $WG, B_PARTS - 1u);
#if PACKED or TRANSPOSED
  let b_column#l = b_e#l / ($TILE_K / B_RUN);
  let b_row#l = b_e#l % ($TILE_K / B_RUN) * B_RUN;
  let b_from#l = min(column + b_column#l, $n - 1u);
#else
  let b_row#l = b_e#l / ($TILE_N / $TOGETHER);
  let b_column#l = b_e#l % ($TILE_N / $TOGETHER) * $TOGETHER;
  let b_from#l = min(column + b_column#l, last);
#end
  var next_b#l = b_part(batch, begin + b_row#l, b_from#l);
#end
  var base = 0u;
  for (var k0 = begin; k0 < k_end; k0 += $TILE_K) {
#if BUFFERS == 1
    workgroupBarrier();
#end
#for l A_LOADS
    put_eight(base + a_row#l * A_STRIDE + a_column#l, before_end(a_at#(TOGETHER)_of(next_a#l), k0 + a_column#l));
#end
#for l B_LOADS
#if PACKED
    {
      let run = b_run_of(next_b#l);
#for r RUN8
      {
        let at = base + A_SIZE + b_column#l * B_STRIDE + b_row#l + 8u * #ru;
        let v = eight_halves(run.v[2 * #r] * run.scale, run.v[2 * #r + 1] * run.scale);
        put_eight(at, before_end(v, k0 + b_row#l + 8u * #ru));
      }
#end
    }
#else
#if TRANSPOSED
    put_eight(base + A_SIZE + b_column#l * B_STRIDE + b_row#l, before_end(b_at#(TOGETHER)_of(next_b#l), k0 + b_row#l));
#else
    {
      let at = base + A_SIZE + b_row#l * B_STRIDE + b_column#l;
      if ($K_WHOLE) { put_eight(at, b_at#(TOGETHER)_of(next_b#l)); }
      else { put_eight(at, select(vec4<u32>(), b_at#(TOGETHER)_of(next_b#l), k0 + b_row#l < $k)); }
    }
#end
#end
#end
    workgroupBarrier();
#for l A_LOADS
    next_a#l = a_part(batch, a_from#l, k0 + $TILE_K + a_column#l);
#end
#for l B_LOADS
    next_b#l = b_part(batch, k0 + $TILE_K + b_row#l, b_from#l);
#end
#for s STEPS
    {
#for i BLOCKS_M
      let left#i = load_left(base + (my_row + #iu * $UNIT_M) * A_STRIDE + #su * $UNIT_K, A_STRIDE);
#end
#for j BLOCKS_N
#if PACKED or TRANSPOSED
      let right#j = load_right_across(base + A_SIZE + (my_column + #ju * $UNIT_N) * B_STRIDE + #su * $UNIT_K, B_STRIDE);
#else
      let right#j = load_right(base + A_SIZE + #su * $UNIT_K * B_STRIDE + my_column + #ju * $UNIT_N, B_STRIDE);
#end
#end
#for i BLOCKS_M
#for j BLOCKS_N
      sum#i_#j = multiply_add(left#i, right#j, sum#i_#j);
#end
#end
    }
#end
#if BUFFERS == 2
    base = TILES_SIZE - base;
#end
  }

  // Stores the results of each subgroup in steps, as in `put_sums`: the fused maps are compiled once, away from the sums. The
  // bounds depend on m so that no compiler unrolls the loops.
  let stages = min($m, 1u) * $STAGES_M * $STAGES;
  let end = min($m, 1u) * STAGE_ROWS * STAGE_FOURS;
  let mine = group * (STAGE_ROWS * STAGE_STRIDE);
  for (var i = 0u; i < stages; i++) {
    workgroupBarrier();
#for r STAGES_M
#for s STAGES
    if (i == #(#r * STAGES + #s)u) {
#for t STAGED_M
#for j STAGED
      put_matrix(mine + #tu * $UNIT_M * STAGE_STRIDE + #ju * $UNIT_N, sum#(#r * STAGED_M + #t)_#(#s * STAGED + #j), STAGE_STRIDE);
#end
#end
    }
#end
#end
    workgroupBarrier();
    for (var e = lane % $LANES; e < end; e += $LANES) {
      let m = row + my_row + i / $STAGES * STAGE_ROWS + e / STAGE_FOURS;
      let n = column + my_column + i % $STAGES * ($STAGED * $UNIT_N) + e % STAGE_FOURS * 4u;
      if (m < $m && n < $n) { y_put4(place, m, n, result_four(mine + e / STAGE_FOURS * STAGE_STRIDE + e % STAGE_FOURS * 4u)); }
    }
  }
}
