// Linear attention (Katharopoulos et al., 2020; Gated DeltaNet, Yang et al., 2024): a state of KEYS x `values` numbers per head
// absorbs one token after the other. An invocation carries one column of the state, in workgroup memory; columns are independent.
// A dispatch processes `chunk` tokens and leaves the state in the last slot of `state`. Earlier slots are the states after the
// tokens before the last, if there are any.
var<workgroup> memory: array<f32, $KEYS * $WG>;

fn kernel(w: u32, lane: u32) {
  let tiles = ($values + $WG - 1u) / $WG;
  let head = w / tiles % $heads;
  let batch = w / tiles / $heads;
  let column = w % tiles * $WG + lane;
  if (column >= $values) { return; }  // there are no barriers
  let begin = $repetition * $chunk;
  let end = min(begin + $chunk, $tokens);
  let slots = max($WINDOW, 1u);
  for (var i = 0u; i < $KEYS; i++) {
    if (begin == 0u) {
      memory[i * $WG + lane] = past_at(batch, head, i, column);
    } else {
      memory[i * $WG + lane] = state_at(slots - 1u, batch, head, i, column);
    }
  }
  if (begin == 0u) {
    for (var slot = 0u; slot + min($tokens, slots) < slots; slot++) {
      for (var i = 0u; i < $KEYS; i++) { state_put(slot, batch, head, i, column, 0f); }
    }
  }
  for (var t = begin; t < end; t++) {
    var seen = 0f;  // the value that the state returns for the key
    for (var i = 0u; i < $KEYS; i++) {
      var s = memory[i * $WG + lane];
      if ($GATED) {
        s *= exp_f32(decay_at(batch, t, head, i));
        memory[i * $WG + lane] = s;
      }
      if ($DELTA) { seen += key_at(batch, t, head, i) * s; }
    }
    var value = value_at(batch, t, head, column);
    if ($DELTA) { value = beta_at(batch, t, head) * (value - seen); }
    for (var i = 0u; i < $KEYS; i++) { memory[i * $WG + lane] += key_at(batch, t, head, i) * value; }
    for (var g = 0u; g < $READERS; g++) {
      let reader = head * $READERS + g;
      var sum = 0f;
      for (var i = 0u; i < $KEYS; i++) { sum += query_at(batch, t, reader / $SHARED, i) * memory[i * $WG + lane]; }
      y_put(batch, t, reader, column, sum * $SCALE);
    }
    if (t + slots >= $tokens && t + 1u < $tokens) {
      for (var i = 0u; i < $KEYS; i++) {
        state_put(t + slots - $tokens, batch, head, i, column, memory[i * $WG + lane]);
      }
    }
  }
  for (var i = 0u; i < $KEYS; i++) { state_put(slots - 1u, batch, head, i, column, memory[i * $WG + lane]); }
}
