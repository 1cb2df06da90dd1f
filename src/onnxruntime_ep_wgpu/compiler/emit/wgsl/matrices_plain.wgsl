// The functions of `matrices_units` in plain WGSL, for adapters without such units. So kernels for these units can be tested
// everywhere. Operands stay in workgroup memory and are read when they are multiplied; until then no invocation may overwrite
// them. Each invocation of a subgroup has a share of a matrix of sums.
#default OPERAND "f16"
#default SUM "f32"
#default TOGETHER 8
// distances of rows of a left operand or columns of a right one, and of steps of k
struct matrix_operand { at: u32, outer: u32, along: u32 }
alias matrix_left = matrix_operand;
alias matrix_right = matrix_operand;
const SHARE = $UNIT_M * $UNIT_N / $LANES;
alias matrix_sum = array<$SUM, SHARE>;
var<workgroup> matrix_memory: array<u32, 4u * MEMORY>;  // no vectors, since different invocations store their components
var<private> matrix_lane: u32;
var<private> matrix_zero: u32;  // unknown to compilers, so that they unroll no loop: with many products that takes minutes

fn begin_matrices(lane: u32) {
  matrix_lane = lane % $LANES;
  matrix_zero = lane >> 16u;
}
#if TOGETHER == 16
fn number_at(at: u32) -> i32 { return extractBits(bitcast<i32>(matrix_memory[at / 4u]), at % 4u * 8u, 8u); }
#else
fn number_at(at: u32) -> f32 { return unpack2x16float(matrix_memory[at / 2u])[at % 2u]; }
#end
fn eight_halves(a: vec4f, b: vec4f) -> vec4<u32> {
  return vec4<u32>(pack_halves(a.xy), pack_halves(a.zw), pack_halves(b.xy), pack_halves(b.zw));
}
fn put_eight(at: u32, v: vec4<u32>) {
#for e 4
  matrix_memory[at / ($TOGETHER / 4u) + #eu] = v[#e];
#end
}
fn load_left(at: u32, stride: u32) -> matrix_left { return matrix_operand(at, stride, 1u); }
fn load_right(at: u32, stride: u32) -> matrix_right { return matrix_operand(at, 1u, stride); }
fn load_right_across(at: u32, stride: u32) -> matrix_right { return matrix_operand(at, stride, 1u); }
fn multiply_add(left: matrix_left, right: matrix_right, sum: matrix_sum) -> matrix_sum {
  var out = sum;
  for (var e = matrix_zero; e < SHARE; e++) {
    let place = matrix_lane + e * $LANES;
    let a = left.at + place / $UNIT_N * left.outer;
    let b = right.at + place % $UNIT_N * right.outer;
    for (var k = matrix_zero; k < $UNIT_K; k++) { out[e] += number_at(a + k * left.along) * number_at(b + k * right.along); }
  }
  return out;
}
fn put_matrix(at: u32, sum: matrix_sum, stride: u32) {
  for (var e = matrix_zero; e < SHARE; e++) {
    let place = matrix_lane + e * $LANES;
    matrix_memory[at + place / $UNIT_N * stride + place % $UNIT_N] = bitcast<u32>(sum[e]);
  }
}
fn load_sum(at: u32, stride: u32) -> matrix_sum {
  var out: matrix_sum;
  for (var e = matrix_zero; e < SHARE; e++) {
    let place = matrix_lane + e * $LANES;
    out[e] = bitcast<$SUM>(matrix_memory[at + place / $UNIT_N * stride + place % $UNIT_N]);
  }
  return out;
}
fn result_four(at: u32) -> vec4<$SUM> {
  return bitcast<vec4<$SUM>>(vec4<u32>(matrix_memory[at], matrix_memory[at + 1u], matrix_memory[at + 2u], matrix_memory[at + 3u]));
}
