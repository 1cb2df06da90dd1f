// Multiplies two matrices in STEPS of k, with the right operand in row-major and in column-major order.
// As in compiled kernels, operands and sums are loaded from workgroup memory and stored there, also between accumulations.
@group(0) @binding(0) var<storage, read> operands: array<vec4<u32>>; // 16 bytes each: left, right, transposed right
@group(0) @binding(1) var<storage, read_write> results: array<vec4<$SUM>>;

@compute @workgroup_size($LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
  begin_matrices(lane);
  for (var i = lane; i < PARTS; i += $LANES) { put_eight(TOGETHER * i, operands[i]); }
  workgroupBarrier();
  var rows: matrix_sum;
  var columns: matrix_sum;
  for (var s = 0u; s < STEPS; s++) {
    let left = load_left(s * K, A_STRIDE);
    rows = multiply_add(left, load_right(B_AT + s * K * B_STRIDE, B_STRIDE), rows);
    columns = multiply_add(left, load_right_across(ACROSS_AT + s * K, A_STRIDE), columns);
  }
  workgroupBarrier();
  put_matrix(M * N, rows, N);
  workgroupBarrier();
  rows = load_sum(M * N, N);
  workgroupBarrier();
  put_matrix(0u, rows, N);
  put_matrix(M * N, columns, N);
  workgroupBarrier();
  for (var i = lane; i < 2u * FOURS; i += $LANES) { results[i] = result_four(4u * i); }
}
