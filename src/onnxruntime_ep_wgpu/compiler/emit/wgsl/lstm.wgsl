// A layer of long short-term memory. A workgroup carries the state of one direction and one sequence through all steps. `x` is
// the contribution of the inputs to the gates (input, output, forget, candidate), precomputed for all steps. `r` are the
// recurrent weights as (direction, state, gate), so that neighbouring invocations load neighbours. A dispatch processes `chunk`
// steps and leaves hidden and cell in `state`, which has the results after the last step.
var<workgroup> hidden: array<f32, 2u * $HIDDEN>;  // of this step and the next, alternating
var<workgroup> cell: array<f32, $HIDDEN>;

fn kernel(w: u32, lane: u32) {
#include recurrent_steps
  for (var u = lane; u < $HIDDEN; u += $WG) {
    if (begin == 0u) {
      hidden[u] = hidden_at(direction, sequence, u);
      cell[u] = cell_at(direction, sequence, u);
    } else {
      hidden[u] = state_at(0u, direction, sequence, u);
      cell[u] = state_at(1u, direction, sequence, u);
    }
  }
  for (var step = begin; step < end; step++) {
    workgroupBarrier();
    let now = (step - begin) % 2u * $HIDDEN;
    let next = $HIDDEN - now;
    let inside = step < length;
    let t = select(step, length - 1u - step, inside && direction + $REVERSE == 1u);
    for (var u = lane; u < $HIDDEN; u += $WG) {
      var sum = vec4f(x_at(t, sequence, direction, u), x_at(t, sequence, direction, u + $HIDDEN),
        x_at(t, sequence, direction, u + 2u * $HIDDEN), x_at(t, sequence, direction, u + 3u * $HIDDEN));
      for (var k = 0u; k < $HIDDEN; k++) {
        sum += hidden[now + k] * vec4f(r_at(direction, k, u), r_at(direction, k, u + $HIDDEN),
          r_at(direction, k, u + 2u * $HIDDEN), r_at(direction, k, u + 3u * $HIDDEN));
      }
      let before = cell[u];
      let input = gate(direction, limited(sum.x + peephole_at(direction, u) * before));
      var keep = 1f - input;
      if (!$COUPLED) { keep = gate(direction, limited(sum.z + peephole_at(direction, u + 2u * $HIDDEN) * before)); }
      let c = keep * before + input * candidate(direction, limited(sum.w));
      let output = gate(direction, limited(sum.y + peephole_at(direction, u + $HIDDEN) * c));
      let h = output * shown(direction, c);
      cell[u] = select(before, c, inside);
      hidden[next + u] = select(hidden[now + u], h, inside);
      y_put(t, direction, sequence, u, select(0f, h, inside));
    }
  }
  // An empty sequence ends in zeros, like in the CPU provider.
  let last = (end - begin) % 2u * $HIDDEN;
  for (var u = lane; u < $HIDDEN; u += $WG) {
    state_put(0u, direction, sequence, u, select(0f, hidden[last + u], length > 0u));
    state_put(1u, direction, sequence, u, select(0f, cell[u], length > 0u));
  }
}
