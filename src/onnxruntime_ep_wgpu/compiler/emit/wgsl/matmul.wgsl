// Matrix product y = a b with tiles in workgroup memory. A workgroup computes TILE_M x TILE_N elements, an invocation 4 * ROWS4 x
// 4 * COLUMNS4 of them. Its sums are separate variables. The next tiles are fetched into registers while the current ones are
// multiplied. SLICES groups of invocations share a tile and split k, which keeps small products parallel. For PACKED weights b
// (n, k) an invocation fetches RUN neighbours of a column, which are whole words.
//
// If neighbours in k are neighbours in memory, A_LANES invocations fetch one row of a together, and B_LANES a column of b. A load
// of a subgroup then reaches few cache lines. `exchanged` determines where they store it.
#default PARTED has("part_k")
const THREADS_X = $TILE_N / (4u * $COLUMNS4);
const THREADS = THREADS_X * $TILE_M / (4u * $ROWS4);  // per slice
const A_SIZE = $SLICES * $TILE_K * $TILE_M / 4u;
const B_SIZE = $SLICES * $TILE_K * $TILE_N / 4u;
const ROW_SIZE = $SLICES * THREADS * $COLUMNS4;
const A_LANES = #(A_LANES if ALONG else 1)u;
const B_LANES = #(B_LANES)u;
const B_RUN = #(4 * RUN4 if PACKED else 4)u;

// During multiplication: the tile of a, k-major per slice, then that of b. Afterwards: one row of results per invocation.
alias tile_t = $y_t;
const TILES = max(A_SIZE + B_SIZE, ROW_SIZE);
#include shared_vectors

// Access to results, in the same memory.
fn sum_at(at: u32) -> vec4<$y_t> { return tile(at); }
fn put_sum(at: u32, v: vec4<$y_t>) { put_tile(at, v); }

#include before_end
#include exchanged

// The index of four rows of column k in the tile of a, and of four columns of row k in that of b. `_in_row` is the part within
// row k of the tile, which is the same for four steps. The bounds only serve the proofs of browsers.
const M4 = $TILE_M / 4u;
const N4 = $TILE_N / 4u;
#if ALONG and A_LANES > 1
#inline a_in_row(k, row4) min(exchange((row4), (k) / 4u, A_LANES, $A_BLOCK), M4 - 1u)
#else
#inline a_in_row(k, row4) (row4)
#end
#if (PACKED or TRANSPOSED) and B_LANES > 1
#inline b_in_row(k, column4) min(exchange((column4), (k) / B_RUN, B_LANES, $B_BLOCK), N4 - 1u)
#else
#inline b_in_row(k, column4) (column4)
#end
#inline a_place(k, row4) (k) * M4 + a_in_row(k, row4)
#inline b_place(k, column4) (k) * N4 + b_in_row(k, column4)

// Loads are clamped to the end of k, so that no branch separates them. `before_end` then inserts zeros.
//
// Four elements of row m of a from column k on.
fn a_part(batch: u32, m: u32, k: u32) -> vec4<$y_t> {
  return a_at4(batch, m, min(k, ($k - 1u) / 4u * 4u));
}

#if PACKED
// A run of column n of b from row k on, in its memory format.
fn b_part(batch: u32, k: u32, n: u32) -> b_run_words_t {
  return b_run_words(batch, n, min(k, ($k - 1u) / B_RUN * B_RUN));
}
#else
// Four elements of a row of b from column n on. With TRANSPOSED, neighbours in n are not adjacent in memory: four elements of a
// column from row k on.
fn b_part(batch: u32, k: u32, n: u32) -> vec4<$y_t> {
  if ($TRANSPOSED) { return b_at4(batch, n, min(k, ($k - 1u) / 4u * 4u)); }
  return b_at4(batch, min(k, $k - 1u), n);
}
#end

fn kernel(w: u32, lane: u32) {
  let count = $tiles_m * $tiles_n;
#if PARTED
  // A part of k, which is whole tiles of every slice except in the last part. Results of different parts are separate, like
  // batches.
  let place = w / count;
  let batch = place % $batches;
  let begin = place / $batches * $part_k;
  let k_end = min(begin + $part_k, $k);
#else
  let place = w / count;
  let batch = place;
  let begin = 0u;
  let k_end = $k;
#end
#include tile_of

  let slice = #("0u" if SLICES == 1 else "lane % $WG / THREADS");
  let me = lane % THREADS;
  let tx = me % THREADS_X;
  let ty = me / THREADS_X;
  let a_base = slice * ($TILE_K * $TILE_M / 4u);
  let b_base = A_SIZE + slice * ($TILE_K * $TILE_N / 4u);
  let last = ($n - 1u) / 4u * 4u;

#for i ROWS4
#for e 4
#for j COLUMNS4
  var sum#i_#e_#j = vec4<$y_t>();
#end
#end
#end
  // The source and destination of this invocation's parts of the tiles.
#for l A_LOADS
  let a_element#l = me + #lu * THREADS;
  let a_in#l = a_element#l / A_LANES % $TILE_M;
  let a_row#l = min(row + a_in#l, $m - 1u);
  let a_column#l = (a_element#l / (A_LANES * $TILE_M) * A_LANES + a_element#l % A_LANES) * 4u;
  var next_a#l = a_part(batch, a_row#l, begin + slice * $TILE_K + a_column#l);
#end
#for l B_LOADS
  let b_element#l = me + #lu * THREADS;
#if PACKED or TRANSPOSED
  let b_in#l = b_element#l / B_LANES % $TILE_N;
  let b_row#l = (b_element#l / (B_LANES * $TILE_N) * B_LANES + b_element#l % B_LANES) * B_RUN;
  let b_column#l = min(column + b_in#l, $n - 1u);
#else
  let b_row#l = b_element#l / ($TILE_N / 4u);
  let b_column#l = min(column + b_element#l % ($TILE_N / 4u) * 4u, last);
#end
  var next_b#l = b_part(batch, begin + slice * $TILE_K + b_row#l, b_column#l);
#end
  for (var k0 = begin; k0 < k_end; k0 += $SLICES * $TILE_K) {
    workgroupBarrier();
    let k = k0 + slice * $TILE_K;
#for l A_LOADS
    {
      let at = a_base + a_place(a_column#l, a_in#l / 4u);
      let part = a_in#l % 4u;
      let v = before_end(next_a#l, k + a_column#l);
#for e 4
      put_part(at + #eu * M4, part, v[#e]);
#end
    }
#end
#for l B_LOADS
#if PACKED
    {
      let at = b_base + b_place(b_row#l, b_in#l / 4u);
      let part = b_in#l % 4u;
      let run = b_run_of(next_b#l);
#for r RUN4
      {
        let v = before_end(run.v[#r] * run.scale, k + b_row#l + 4u * #ru);
#for e 4
        put_part(at + #(4 * #r + #e)u * N4, part, v[#e]);
#end
      }
#end
    }
#else
#if TRANSPOSED
    {
      let at = b_base + b_place(b_row#l, b_in#l / 4u);
      let part = b_in#l % 4u;
      let v = before_end(next_b#l, k + b_row#l);
#for e 4
      put_part(at + #eu * N4, part, v[#e]);
#end
    }
#else
    if ($K_WHOLE) { put_tile(b_base + b_element#l, next_b#l); }
    else { put_tile(b_base + b_element#l, select(vec4<$y_t>(), next_b#l, k + b_row#l < $k)); }
#end
#end
#end
    workgroupBarrier();
#for l A_LOADS
    next_a#l = a_part(batch, a_row#l, k + $SLICES * $TILE_K + a_column#l);
#end
#for l B_LOADS
    next_b#l = b_part(batch, k + $SLICES * $TILE_K + b_row#l, b_column#l);
#end
    // Unrolled here, because compilers do not unroll it: 4096 x 4096 x 4096 then reaches 34 instead of 43 TFLOP/s on an H200.
    for (var step = 0u; step < $TILE_K / $UNROLLED; step++) {
      let part = step * $UNROLLED;
#for k UNROLLED
#if #k % 4 == 0
#for j COLUMNS4
      let b_at#k_#j = b_base + b_in_row(part + #ku, #ju * THREADS_X + tx);
#end
#for i ROWS4
      let a_at#k_#i = a_base + a_in_row(part + #ku, ty * $ROWS4 + #iu);
#end
#end
      {
      let step_k = part + #ku;
#for j COLUMNS4
      let at_b#j = b_at#(#k // 4 * 4)_#j + step_k * N4;
      let right#j = vector(at_b#j);
#end
#for i ROWS4
      let at_a#i = a_at#(#k // 4 * 4)_#i + step_k * M4;
      let left#i = vector(at_a#i);
#end
#for i ROWS4
#for e 4
#for j COLUMNS4
      sum#i_#e_#j += left#i[#e] * right#j;
#end
#end
#end
      }
#end
    }
  }
#include put_sums
}
