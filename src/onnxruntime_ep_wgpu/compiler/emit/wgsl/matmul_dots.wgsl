// Matrix product y = a b of a rounded to 8 bits and packed weights b (n, k). Tiles of bytes in workgroup memory have GROUP
// columns of a at a time. The step of a row and the scale of a column are common factors of a group, and scale the sum of its
// products once. A workgroup computes TILE_M x TILE_N elements, an invocation 4 * ROWS4 x 4 * COLUMNS4 of them. Its sums are
// separate variables. The next tiles are fetched into registers while the current ones are multiplied.
//
// LANES invocations share the group of a row: each finds the largest magnitude of its part and shares it with the others. B_LANES
// invocations fetch a column of b together. `exchanged` determines where they store it.
const THREADS_X = $TILE_N / (4u * $COLUMNS4);
const THREADS = $WG;
// The bits of a float that, plus an integer below 2^22, is the float with that many more units in the last place. Sums that begin
// with these bits convert to floats without a conversion instruction, which GPUs execute more slowly.
const UNIT = 0x4b400000i;
const GROUP4 = $GROUP / 4u;
const A_SIZE = GROUP4 * $TILE_M / 4u;
const B_SIZE = GROUP4 * $TILE_N / 4u;
const B_RUN = #(4 * RUN4)u;

// During multiplication: the tile of a, that of b, the steps of rows and the scales of columns. Afterwards: one row of results
// per invocation.
alias tile_t = u32;
const STEPS = A_SIZE + B_SIZE;
const SCALES = STEPS + $TILE_M / 4u;
const TILES = max(SCALES + $TILE_N / 4u, THREADS * $COLUMNS4);
#include shared_vectors
var<workgroup> tops: array<u32, THREADS>;  // the bits of the largest magnitude of each invocation's part of a row

fn sum_at(at: u32) -> vec4f { return bitcast<vec4f>(tile(at)); }
fn put_sum(at: u32, v: vec4f) { put_tile(at, bitcast<vec4u>(v)); }

#include exchanged
#include rounded_run

// The index of word k of four rows in the tile of a, and of four columns in that of b. `_in_row` is the part within row k of the
// tile, which is the same for the words that an invocation fetches together. The bounds only serve the proofs of browsers.
const M4 = $TILE_M / 4u;
const N4 = $TILE_N / 4u;
#inline a_in_row(k, row4) min(exchange((row4), (k) / $ROUNDED4, $LANES, $A_BLOCK), M4 - 1u)
#inline b_in_row(k, column4) min(exchange((column4), (k) / $RUN4, $B_LANES, $B_BLOCK), N4 - 1u)

fn dots(left: u32, right: vec4u) -> vec4i {
  return vec4i(#[dot4I8Packed(left, right[#c]) for c 4]);
}
fn number(dot: vec4i) -> vec4f { return bitcast<vec4f>(dot) - bitcast<f32>(UNIT); }

fn kernel(w: u32, lane: u32) {
  let count = $tiles_m * $tiles_n;
  let place = w / count;
  let batch = place;
#include tile_of

  let slice = 0u;
  let me = lane % THREADS;
  let tx = me % THREADS_X;
  let ty = me / THREADS_X;
#for p LANES
#for i ROWS4
  let a_at#p_#i = a_in_row(#pu * $ROUNDED4, ty * $ROWS4 + #iu);
#end
#end
#for p B_LANES
#for j COLUMNS4
  let b_at#p_#j = b_in_row(#pu * $RUN4, #ju * THREADS_X + tx);
#end
#end

#for i ROWS4
#for e 4
#for j COLUMNS4
  var sum#i_#e_#j = vec4f();
#end
#end
#end
  let a_in = me / $LANES % $TILE_M;
  let a_part = me % $LANES * $ROUNDED4;
  let a_row = min(row + a_in, $m - 1u);
  let last = ($k - 1u) / $GROUP * $GROUP;
#for p ROUNDED4
  var next_a#p = a_at4(batch, a_row, 4u * (a_part + #pu));
#end
#for l B_LOADS
  let b_element#l = me + #lu * THREADS;
  let b_in#l = b_element#l / $B_LANES % $TILE_N;
  let b_row#l = b_element#l % $B_LANES * B_RUN;
  let b_column#l = min(column + b_in#l, $n - 1u);
  var next_b#l = b_run_words(batch, b_column#l, b_row#l);
#end
  for (var k0 = 0u; k0 < $k; k0 += $GROUP) {
    let part_of_row = array(#[next_a#p for p ROUNDED4]);
    let top = largest_bits(part_of_row);
    tops[me] = top;
    workgroupBarrier();
    {
      var bits = 0u;
#for l LANES
      bits = max(bits, tops[me / $LANES * $LANES + #lu]);
#end
      let most = largest(bits);
      let words = rounded(part_of_row, most);
#for p ROUNDED4
      put_part((a_part + #pu) * M4 + a_in_row(a_part, a_in / 4u), a_in % 4u, words[#p]);
#end
      if (a_part == 0u) { put_part(STEPS + a_in / 4u, a_in % 4u, bitcast<u32>(most / 127f)); }
    }
#for l B_LOADS
    {
      let run = b_run_bytes_of(next_b#l);
#for r RUN4
      put_part(A_SIZE + (b_row#l / 4u + #ru) * N4 + b_in_row(b_row#l / 4u, b_in#l / 4u), b_in#l % 4u, run.v[#r]);
#end
      if (b_row#l == 0u) { put_part(SCALES + b_in#l / 4u, b_in#l % 4u, bitcast<u32>(run.scale)); }
    }
#end
    workgroupBarrier();
    let k = min(k0 + $GROUP, last);
#for p ROUNDED4
    next_a#p = a_at4(batch, a_row, k + 4u * (a_part + #pu));
#end
#for l B_LOADS
    next_b#l = b_run_words(batch, b_column#l, k + b_row#l);
#end
#for i ROWS4
    let step#i = bitcast<vec4f>(vector(STEPS + ty * $ROWS4 + #iu));
#end
#for j COLUMNS4
    {
#for i ROWS4
#for e 4
      var dot#i_#e = vec4i(UNIT);
#end
#end
#for k GROUP // 4
      {
        let right = vector(A_SIZE + #ku * N4 + b_at#(#k // RUN4)_#j);
#for i ROWS4
        let left#i = vector(#ku * M4 + a_at#(#k // ROUNDED4)_#i);
#for e 4
        dot#i_#e += dots(left#i[#e], right);
#end
#end
      }
#end
      let scale = bitcast<vec4f>(vector(SCALES + #ju * THREADS_X + tx));
#for i ROWS4
#for e 4
      sum#i_#e_#j += scale * number(dot#i_#e) * step#i[#e];
#end
#end
    }
#end
  }
#include put_sums
}
