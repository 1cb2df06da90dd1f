// Matrices of subgroups by units of their own, as Tint spells them. `matrices_plain` has the same functions.
//
// Tiles are halves in workgroup memory, at which functions count; a matrix begins `at` one of them, and its rows, or the columns of one
// that lies `across`, are `stride` apart. Results are f32, in memory of their own.
alias matrix_left = subgroup_matrix_left<f16, $UNIT_K, $UNIT_M>;
alias matrix_right = subgroup_matrix_right<f16, $UNIT_N, $UNIT_K>;
alias matrix_sum = subgroup_matrix_result<f32, $UNIT_N, $UNIT_M>;
var<workgroup> matrix_halves: array<f16, $BUFFERS * $HALVES>;
var<workgroup> matrix_results: array<f32, $RESULTS>;

fn begin_matrices(lane: u32) {}
fn put_four(at: u32, v: vec4f) {
  let h = vec4<f16>(v);
#for e 4
  matrix_halves[at + #eu] = h[#e];
#end
}
fn load_left(at: u32, stride: u32) -> matrix_left {
  return subgroupMatrixLoad<matrix_left, row_major>(&matrix_halves, at, stride);
}
fn load_right(at: u32, stride: u32) -> matrix_right {
  return subgroupMatrixLoad<matrix_right, row_major>(&matrix_halves, at, stride);
}
fn load_right_across(at: u32, stride: u32) -> matrix_right {
  return subgroupMatrixLoad<matrix_right, col_major>(&matrix_halves, at, stride);
}
fn multiply_add(left: matrix_left, right: matrix_right, sum: matrix_sum) -> matrix_sum {
  return subgroupMatrixMultiplyAccumulate(left, right, sum);
}
fn put_matrix(at: u32, sum: matrix_sum, stride: u32) {
  subgroupMatrixStore<row_major>(&matrix_results, at, sum, stride);
}
fn result_four(at: u32) -> vec4f { return vec4f(matrix_results[at], matrix_results[at + 1u], matrix_results[at + 2u], matrix_results[at + 3u]); }
