// A layer of gated recurrent units. A workgroup carries the state of one direction and one sequence through all steps. `x` is the
// contribution of the inputs to the gates (update, reset, candidate), precomputed for all steps. `r` are the recurrent weights as
// (direction, state, gate), so that neighbouring invocations load neighbours. A dispatch processes `chunk` steps and leaves the
// state in `state`, which has the result after the last step.
var<workgroup> hidden: array<f32, $HIDDEN>;
var<workgroup> update: array<f32, $HIDDEN>;
var<workgroup> reset: array<f32, $HIDDEN>;  // the state that the candidate reads, or its contribution to the candidate

fn kernel(w: u32, lane: u32) {
#include recurrent_steps
  for (var u = lane; u < $HIDDEN; u += $WG) {
    if (begin == 0u) { hidden[u] = hidden_at(direction, sequence, u); } else { hidden[u] = state_at(0u, direction, sequence, u); }
  }
  for (var step = begin; step < end; step++) {
    workgroupBarrier();
    let inside = step < length;
    let t = select(step, length - 1u - step, inside && direction + $REVERSE == 1u);
    for (var u = lane; u < $HIDDEN; u += $WG) {
      var sum = vec3f(x_at(t, sequence, direction, u), x_at(t, sequence, direction, u + $HIDDEN), bias_at(direction, u));
      for (var k = 0u; k < $HIDDEN; k++) {
        sum += hidden[k] * vec3f(r_at(direction, k, u), r_at(direction, k, u + $HIDDEN), r_at(direction, k, u + 2u * $HIDDEN));
      }
      update[u] = gate(direction, limited(sum.x));
      reset[u] = gate(direction, limited(sum.y)) * select(hidden[u], sum.z, $LINEAR_BEFORE_RESET);
    }
    workgroupBarrier();
    for (var u = lane; u < $HIDDEN; u += $WG) {
      var sum = x_at(t, sequence, direction, u + 2u * $HIDDEN);
      if ($LINEAR_BEFORE_RESET) {
        sum += reset[u];
      } else {
        for (var k = 0u; k < $HIDDEN; k++) { sum += reset[k] * r_at(direction, k, u + 2u * $HIDDEN); }
      }
      let h = (1f - update[u]) * candidate(direction, limited(sum)) + update[u] * hidden[u];
      hidden[u] = select(hidden[u], h, inside);
      y_put(t, direction, sequence, u, select(0f, h, inside));
    }
  }
  // An empty sequence ends in zeros, like in the CPU provider.
  for (var u = lane; u < $HIDDEN; u += $WG) { state_put(0u, direction, sequence, u, select(0f, hidden[u], length > 0u)); }
}
