// Two consecutive products: rows of K0 elements by K0 x K1 weights, and `hidden` of the results by K1 x COLUMNS weights. The
// weights are small, and waiting for another kernel costs more than both products ("Squeeze-and-Excitation Networks", Hu et al.,
// 2018). A workgroup computes N1 columns of a row, and for these all of the hidden ones, N0.
//
// AVERAGED: a row is `averaged` of the sums of `positions` elements of an image. Several invocations share each sum, with four
// loads in flight.
const FOURS = ($K0 + 3u) / 4u;
const LOADED = min(FOURS, $WG);  // at a time

var<workgroup> shares: array<f32, #(4 if AVERAGED else 1)u * $WG>;
var<workgroup> row0: array<f32, $ROW>;  // the row, and after it was read the results
var<workgroup> row1: array<f32, ($K1 + 3u) / 4u * 4u>;  // the hidden row

fn load_row(row: u32, lane: u32) {
#if AVERAGED
  const SHARES = $WG / LOADED;
  for (var first = 0u; first < FOURS; first += LOADED) {
    let k = 4u * min(first + lane % LOADED, FOURS - 1u);
    let nothing = vec4f(minus_zero());  // changes no sum
    var sum = nothing;
    if (lane < SHARES * LOADED) {
      for (var at = lane / LOADED; at < $positions; at += 4u * SHARES) {
#for s 4
        let v#s = x_at4(row, min(at + #su * SHARES, $positions - 1u), k);
#end
        sum += (v0 + select(nothing, v1, at + SHARES < $positions))
          + (select(nothing, v2, at + 2u * SHARES < $positions) + select(nothing, v3, at + 3u * SHARES < $positions));
      }
    }
    workgroupBarrier();
#for e 4
    shares[#eu * $WG + lane] = sum[#e];
#end
    workgroupBarrier();
    for (var c = lane; c < 4u * min(LOADED, FOURS - first); c += $WG) {
      var total = nothing.x;
      for (var s = 0u; s < SHARES; s++) { total += shares[c % 4u * $WG + s * LOADED + c / 4u]; }
      let k = 4u * first + c;
      var v = 0f;  // after the row
      if (k < $K0) { v = averaged(row, k, finish(total, $count)); }
      row0[k] = v;
    }
  }
#else
  for (var k = 4u * lane; k < $K0; k += 4u * $WG) {
    let v = x_at4(row, 0u, k);
#for e 4
    row0[k + #eu] = select(0f, v[#e], k + #eu < $K0);
#end
  }
#end
}

#for q 2
// Product #q: N#q columns from `begin` on. Neighbours read neighbouring weights.
const WIDTH#q = min($N#q, $WG);  // at a time
const SHARES#q = min($WG / WIDTH#q, ($K#q + 3u) / 4u);

fn multiply#q(row: u32, begin: u32, lane: u32) {
#if ALONG#q
  let column = lane / SHARES#q;
  let share = lane % SHARES#q;
#else
  let column = lane % WIDTH#q;
  let share = lane / WIDTH#q;
#end
  for (var first = 0u; first < $N#q; first += WIDTH#q) {
    let n = begin + first + column;
    var sum = 0f;
    if (column < WIDTH#q && share < SHARES#q && n < #("$K1" if #q == 0 else "$COLUMNS")) {
      for (var k = 4u * share; k < $K#q; k += 16u * SHARES#q) {
#for s 4
        let k#s = k + #su * 4u * SHARES#q;
        let at#s = min(k#s, ($K#q - 1u) / 4u * 4u);
        let w#s = w#q_at4(n, at#s);
#end
#for s 4
        {
          let v = vec4f(#[row#q[at#s + #eu] for e 4]);
          let inside = vec4u(#[k#s + #eu for e 4]) < vec4u($K#q);
          // The row is 0 past its end, and the memory may contain anything there.
          sum += select(0f, dot(select(vec4f(), w#s, inside), v), k#s < $K#q);
        }
#end
      }
    }
    workgroupBarrier();
    shares[lane] = sum;
    workgroupBarrier();
    if (lane < min(WIDTH#q, $N#q - first)) {
      var total = 0f;
      for (var s = 0u; s < SHARES#q; s++) {
        total += shares[select(s * WIDTH#q + lane, lane * SHARES#q + s, $ALONG#q)];
      }
#if #q == 0
      row1[first + lane] = hidden(row, first + lane, total);
#else
      row0[first + lane] = total;
#end
    }
  }
  workgroupBarrier();
}

#end
fn kernel(w: u32, lane: u32) {
  let row = w / $SPLITS;
  let begin = w % $SPLITS * $N1;
  if (lane == 0u) {
    for (var k = $K1; k % 4u != 0u; k++) { row1[k] = 0f; }
  }
  load_row(row, lane);
  workgroupBarrier();
  multiply0(row, 0u, lane);
  multiply1(row, begin, lane);
  for (var c = 4u * lane; c < $N1; c += 4u * $WG) {
    if (begin + c < $COLUMNS) { y_put4(row, begin + c, vec4f(#[row0[c + #eu] for e 4])); }
  }
}
