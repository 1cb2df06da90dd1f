// A layer of simple recurrent units: a workgroup carries the state of one direction and one sequence through all steps.
// `x` is what the inputs add, made for all steps beforehand; `r` are the recurrent weights as (direction, state, result),
// so that neighbouring invocations load neighbours.
var<workgroup> hidden: array<f32, 2u * $HIDDEN>;  // of this step and the next, in turn

fn kernel(w: u32, lane: u32) {
  let direction = w / $batch;
  let sequence = w % $batch;
  let length = min(u32(lengths_at(sequence)), $steps);
  for (var u = lane; u < $HIDDEN; u += $WG) { hidden[u] = hidden_at(direction, sequence, u); }
  for (var step = 0u; step < $steps; step++) {
    workgroupBarrier();
    let now = step % 2u * $HIDDEN;
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
  let last = $steps % 2u * $HIDDEN;
  // An empty sequence ends in zeros, as the CPU provider has it.
  for (var u = lane; u < $HIDDEN; u += $WG) { last_put(direction, sequence, u, select(0f, hidden[last + u], length > 0u)); }
}
