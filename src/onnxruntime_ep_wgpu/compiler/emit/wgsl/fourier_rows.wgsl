// Fourier transforms that fit into workgroup memory, GROUP rows per workgroup. An invocation computes transforms of RADIX
// elements in registers, as PART0 of PART1 elements each. Between passes elements are exchanged through workgroup memory. So each
// element is loaded once and stored once, two complex numbers at a time if rows allow it (FOURS_IN, FOURS_OUT). WHOLE: a row has
// all elements. HALF and the roots are as in fourier_step. COS<n>_<k> and SIN<n>_<k> are the n-th roots of unity; TURN is the
// sign of their angle.
//
// On an H100, 4,096 rows of 1,024 complex numbers take 0.038 ms. With passes of 4 elements, and one number at a time, they take
// 0.073.
#if STEPS > 1
var<workgroup> real: array<f32, $ROOM + $ROOM / 32u>;
var<workgroup> imag: array<f32, $ROOM + $ROOM / 32u>;
#end

fn times(a: vec2f, b: vec2f) -> vec2f { return vec2f(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
fn root(k: u32) -> vec2f { return vec2f(roots_at(k, 0u), roots_at(k, 1u)); }
// The place of an element. Lanes with elements a power of two apart use different banks.
fn room(at: u32) -> u32 { return at + at / 32u; }

fn kernel(w: u32, lane: u32) {
#for s STEPS
  {
#for u SHARE#s
#if TWINS#s
    let unit#u = (lane + #(#u // 2 * INVOCATIONS)u) * 2u + #(#u % 2)u;
#else
    let unit#u = lane + #(#u * INVOCATIONS)u;
#end
    let at#u = unit#u % $EACH#s;
    let first#u = unit#u / $EACH#s * $ALL;
#for j RADIX#s
    var v#u_#j = vec2f();
#end
#end
#for u SHARE#s
    if (unit#u < $UNITS#s) {
#if #s == 0
      let row = w * $GROUP + unit#u / $EACH0;
#if FOURS_IN
#if #u % 2 == 0
#for j RADIX0
      let x#j = x_at4(min(row, $rows - 1u), 2u * (at#u + #ju * $EACH0));
      v#u_#j = x#j.xy;
      v#(#u + 1)_#j = x#j.zw;
#end
#end
#else
#for j RADIX0
      {
        let part = at#u + #ju * $EACH0;
#if HALF
        let at = min(part, $ALL - part);
        let sign = select(select(1f, -1f, at != part), 0f, part == 0u || 2u * part == $ALL);
#else
        let at = part;
        let sign = 1f;
#end
#if WHOLE
        let near = vec2u(min(row, $rows - 1u), at);
#else
        let inside = at < $inputs && row < $rows;
        let near = select(vec2u(), vec2u(row, at), inside);
#end
#if PARTS == 2
        let value = vec2f(x_at(near.x, near.y, 0u), sign * x_at(near.x, near.y, 1u));
#else
        let value = vec2f(x_at(near.x, near.y, 0u), 0f);
#end
#if WHOLE
        v#u_#j = value;
#else
        v#u_#j = select(vec2f(), value, inside);
#end
      }
#end
#end
#else
#for j RADIX#s
      v#u_#j = vec2f(real[room(first#u + at#u + #ju * $EACH#s)], imag[room(first#u + at#u + #ju * $EACH#s)]);
#end
      let place = at#u % $LENGTH#s * $REST#s;
#for b PART#s_1
#if #b > 0
      let by#b = root(place * #bu);
      v#u_#b = times(v#u_#b, by#b);
#end
#end
#for a PART#s_0
#if #a > 0
      let far#a = root(place * #(#a * PART#s_1)u);
      v#u_#(#a * PART#s_1) = times(v#u_#(#a * PART#s_1), far#a);
#for b PART#s_1
#if #b > 0
      v#u_#(#a * PART#s_1 + #b) = times(v#u_#(#a * PART#s_1 + #b), times(far#a, by#b));
#end
#end
#end
#end
#end
    }
#end
#for u SHARE#s
#for g 2
#for o APART#s_#g
    {
#for i PART#s_#g
      let p#i = v#u_#(#o * (PART#s_1 if #g else 1) + #i * (1 if #g else PART#s_1));
#end
#if PART#s_#g == 1
      let q0 = p0;
#else
#if PART#s_#g == 2
      let q0 = p0 + p1;
      let q1 = p0 - p1;
#else
#if PART#s_#g == 4
      let even = p0 + p2;
      let odd = p0 - p2;
      let sum = p1 + p3;
      let apart = $TURN * vec2f(p3.y - p1.y, p1.x - p3.x);
      let q0 = even + sum;
      let q1 = odd + apart;
      let q2 = even - sum;
      let q3 = odd - apart;
#else
#for m PART#s_#g
      let q#m = #[times(p#i, vec2f(#(COS#(PART#s_#g)_#(#i * #m % PART#s_#g))f, #(SIN#(PART#s_#g)_#(#i * #m % PART#s_#g))f)) for i PART#s_#g by +];
#end
#end
#end
#end
#for m PART#s_#g
#if #g == 0 and #m * #o > 0
      v#u_#(#o + #m * PART#s_1) = times(q#m, vec2f(#(COS#(RADIX#s)_#(#o * #m))f, #(SIN#(RADIX#s)_#(#o * #m))f));
#else
      v#u_#(#o * (PART#s_1 if #g else 1) + #m * (1 if #g else PART#s_1)) = q#m;
#end
#end
    }
#end
#end
#end
#if #s < STEPS - 1
#if #s > 0
    workgroupBarrier();
#end
#for u SHARE#s
    if (unit#u < $UNITS#s) {
      let end = first#u + at#u / $LENGTH#s * ($LENGTH#s * $RADIX#s) + at#u % $LENGTH#s;
#for a PART#s_0
#for b PART#s_1
      real[room(end + #(#a + #b * PART#s_0)u * $LENGTH#s)] = v#u_#(#a * PART#s_1 + #b).x;
      imag[room(end + #(#a + #b * PART#s_0)u * $LENGTH#s)] = v#u_#(#a * PART#s_1 + #b).y;
#end
#end
    }
#end
    workgroupBarrier();
#else
#for u SHARE#s
    {
      let row = w * $GROUP + unit#u / $EACH#s;
      if (unit#u < $UNITS#s && row < $rows) {
#for a PART#s_0
#for b PART#s_1
#if FOURS_OUT
#if #u % 2 == 0
        y_put4(row, 2u * (at#u + #(#a + #b * PART#s_0)u * $EACH#s), $SCALE * vec4f(v#u_#(#a * PART#s_1 + #b), v#(#u + 1)_#(#a * PART#s_1 + #b)));
#end
#else
        put(row, at#u + #(#a + #b * PART#s_0)u * $EACH#s, $SCALE * v#u_#(#a * PART#s_1 + #b));
#end
#end
#end
      }
    }
#end
#end
  }
#end
}
#if not FOURS_OUT

fn put(row: u32, bin: u32, v: vec2f) {
#if BINS < ALL
  if (bin >= $BINS) { return; }
#end
  y_put(row, bin, 0u, v.x);
#if RESULTS == 2
  y_put(row, bin, 1u, v.y);
#end
}
#end
