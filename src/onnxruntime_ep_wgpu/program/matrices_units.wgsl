// Subgroup matrices on matrix units, in Tint's syntax. `matrices_plain` has the same functions.
//
// Tiles are in workgroup memory, as elements of type OPERAND (halves or signed bytes), and indices count elements. TOGETHER, 8
// or 16, is the number of elements in 16 bytes. A matrix begins at element `at`. Its rows are `stride` elements apart, or its
// columns if it is loaded `across`. All are multiples of TOGETHER. Results are of type SUM, f32 or i32, in the same memory, in
// units of 4 bytes.
alias matrix_left = subgroup_matrix_left<$OPERAND, $UNIT_K, $UNIT_M>;
alias matrix_right = subgroup_matrix_right<$OPERAND, $UNIT_N, $UNIT_K>;
alias matrix_sum = subgroup_matrix_result<$SUM, $UNIT_N, $UNIT_M>;
var<workgroup> matrix_memory: array<vec4<u32>, MEMORY>;

fn begin_matrices(lane: u32) {}
fn eight_halves(a: vec4f, b: vec4f) -> vec4<u32> {
  return vec4<u32>(bitcast<vec2<u32>>(vec4<f16>(a)), bitcast<vec2<u32>>(vec4<f16>(b)));
}
fn put_eight(at: u32, v: vec4<u32>) { matrix_memory[at / $TOGETHER] = v; }  // or sixteen bytes
fn load_left(at: u32, stride: u32) -> matrix_left {
  return subgroupMatrixLoad<matrix_left, row_major>(&matrix_memory, at / $TOGETHER, stride / $TOGETHER);
}
fn load_right(at: u32, stride: u32) -> matrix_right {
  return subgroupMatrixLoad<matrix_right, row_major>(&matrix_memory, at / $TOGETHER, stride / $TOGETHER);
}
fn load_right_across(at: u32, stride: u32) -> matrix_right {
  return subgroupMatrixLoad<matrix_right, col_major>(&matrix_memory, at / $TOGETHER, stride / $TOGETHER);
}
fn multiply_add(left: matrix_left, right: matrix_right, sum: matrix_sum) -> matrix_sum {
  return subgroupMatrixMultiplyAccumulate(left, right, sum);
}
fn put_matrix(at: u32, sum: matrix_sum, stride: u32) {
  subgroupMatrixStore<row_major>(&matrix_memory, at / 4u, sum, stride / 4u);
}
fn load_sum(at: u32, stride: u32) -> matrix_sum {
  return subgroupMatrixLoad<matrix_sum, row_major>(&matrix_memory, at / 4u, stride / 4u);
}
fn result_four(at: u32) -> vec4<$SUM> { return bitcast<vec4<$SUM>>(matrix_memory[at / 4u]); }
