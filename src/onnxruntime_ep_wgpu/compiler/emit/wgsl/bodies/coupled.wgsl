// The probability of one of K classes, from the probabilities of the first class of each pair. This is the second method of Wu,
// Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling" (2004).
  var q: array<f32, $K * $K>;
  var p: array<f32, $K>;
  var qp: array<f32, $K>;
  var pair = 0u;
  for (var i = 0u; i < $K; i++) { p[i] = 1f / f32($K); }
  for (var i = 0u; i < $K; i++) {
    for (var j = i + 1u; j < $K; j++) {
      let first = pairs_at(row, pair);
      let second = 1f - first;
      q[i * $K + i] += second * second;
      q[j * $K + j] += first * first;
      q[i * $K + j] = -first * second;
      q[j * $K + i] = -first * second;
      pair++;
    }
  }
  for (var step = 0u; step < $STEPS; step++) {
    var sum = 0f;
    for (var i = 0u; i < $K; i++) {
      qp[i] = 0f;
      for (var j = 0u; j < $K; j++) { qp[i] += q[i * $K + j] * p[j]; }
      sum += p[i] * qp[i];
    }
    var most = 0f;
    for (var i = 0u; i < $K; i++) { most = max(most, abs(qp[i] - sum)); }
    if (most < 0.005f / f32($K)) { break; }
    for (var i = 0u; i < $K; i++) {
      let more = (sum - qp[i]) / q[i * $K + i];
      let whole = 1f + more;
      p[i] += more;
      sum = (sum + more * (more * q[i * $K + i] + 2f * qp[i])) / whole / whole;
      for (var j = 0u; j < $K; j++) {
        qp[j] = (qp[j] + more * q[i * $K + j]) / whole;
        p[j] /= whole;
      }
    }
  }
  return p[which];
