// The determinant of a matrix of N rows, by elimination with row exchanges.
  var a: array<f32, max($N * $N, 1u)>;
  for (var k = 0u; k < $N * $N; k++) { a[k] = x_at(matrix, k); }
  var result = 1f;
  for (var k = 0u; k < $N; k++) {
    var pivot = k;
    for (var r = k + 1u; r < $N; r++) {
      if (abs(a[r * $N + k]) > abs(a[pivot * $N + k])) { pivot = r; }
    }
    if (pivot != k) {
      result = -result;
      for (var c = 0u; c < $N; c++) {
        let other = a[k * $N + c];
        a[k * $N + c] = a[pivot * $N + c];
        a[pivot * $N + c] = other;
      }
    }
    let top = a[k * $N + k];
    result *= top;
    if (top == 0f) { return result; }
    for (var r = k + 1u; r < $N; r++) {
      let factor = a[r * $N + k] / top;
      for (var c = k; c < $N; c++) { a[r * $N + c] -= factor * a[k * $N + c]; }
    }
  }
  return result;
