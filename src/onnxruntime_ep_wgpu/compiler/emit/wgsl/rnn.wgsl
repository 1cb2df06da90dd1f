// A layer of simple recurrent units. A workgroup carries the state of one direction and one sequence through all steps. `x` is
// the contribution of the inputs, precomputed for all steps. `r` are the recurrent weights as (direction, state, result), so that
// neighbouring invocations load neighbours. A dispatch processes `chunk` steps and leaves the state in `state`, which has the
// result after the last step.
var<workgroup> hidden: array<f32, 2u * $HIDDEN>;  // of this step and the next, alternating

fn kernel(w: u32, lane: u32) {
#include recurrent_steps
  for (var u = lane; u < $HIDDEN; u += $WG) {
    if (begin == 0u) { hidden[u] = hidden_at(direction, sequence, u); } else { hidden[u] = state_at(0u, direction, sequence, u); }
  }
  for (var step = begin; step < end; step++) {
    workgroupBarrier();
    let now = (step - begin) % 2u * $HIDDEN;
    let next = $HIDDEN - now;
    let inside = step < length;
    let t = select(step, length - 1u - step, inside && direction + $REVERSE == 1u);
    for (var u = lane; u < $HIDDEN; u += $WG) {
      var sum = x_at(t, sequence, direction, u);
      for (var k = 0u; k < $HIDDEN; k++) { sum += hidden[now + k] * r_at(direction, k, u); }
      let h = gate(direction, limited(sum));
      hidden[next + u] = select(hidden[now + u], h, inside);
      y_put(t, direction, sequence, u, select(0f, h, inside));
    }
  }
  let last = (end - begin) % 2u * $HIDDEN;
  // An empty sequence ends in zeros, like in the CPU provider.
  for (var u = lane; u < $HIDDEN; u += $WG) { state_put(0u, direction, sequence, u, select(0f, hidden[last + u], length > 0u)); }
}
