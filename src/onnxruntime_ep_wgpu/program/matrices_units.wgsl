// Matrices of subgroups by units of their own, as Tint spells them. `matrices_plain` has the same functions.
//
// Tiles are halves in workgroup memory, at which functions count; a matrix begins `at` one of them, and its rows, or the columns of one
// that lies `across`, are `stride` apart, all multiples of 8. Results are f32, in the same memory, counted in fours of bytes.
alias matrix_left = subgroup_matrix_left<f16, $UNIT_K, $UNIT_M>;
alias matrix_right = subgroup_matrix_right<f16, $UNIT_N, $UNIT_K>;
alias matrix_sum = subgroup_matrix_result<f32, $UNIT_N, $UNIT_M>;
var<workgroup> matrix_memory: array<vec4<u32>, MEMORY>;

fn begin_matrices(lane: u32) {}
fn eight_halves(a: vec4f, b: vec4f) -> vec4<u32> {
  return vec4<u32>(bitcast<vec2<u32>>(vec4<f16>(a)), bitcast<vec2<u32>>(vec4<f16>(b)));
}
fn put_eight(at: u32, v: vec4<u32>) { matrix_memory[at / 8u] = v; }
fn load_left(at: u32, stride: u32) -> matrix_left {
  return subgroupMatrixLoad<matrix_left, row_major>(&matrix_memory, at / 8u, stride / 8u);
}
fn load_right(at: u32, stride: u32) -> matrix_right {
  return subgroupMatrixLoad<matrix_right, row_major>(&matrix_memory, at / 8u, stride / 8u);
}
fn load_right_across(at: u32, stride: u32) -> matrix_right {
  return subgroupMatrixLoad<matrix_right, col_major>(&matrix_memory, at / 8u, stride / 8u);
}
fn multiply_add(left: matrix_left, right: matrix_right, sum: matrix_sum) -> matrix_sum {
  return subgroupMatrixMultiplyAccumulate(left, right, sum);
}
fn put_matrix(at: u32, sum: matrix_sum, stride: u32) {
  subgroupMatrixStore<row_major>(&matrix_memory, at / 4u, sum, stride / 4u);
}
fn result_four(at: u32) -> vec4f { return bitcast<vec4f>(matrix_memory[at / 4u]); }
