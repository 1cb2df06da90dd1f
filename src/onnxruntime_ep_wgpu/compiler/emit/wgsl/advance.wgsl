// Advances the state of a random number generator: a key of two words, and the number of the run in two more.
fn kernel(w: u32, lane: u32) {
  let low = state_at(2u) + 1u;
  state_put(2u, low);
  if (low == 0u) { state_put(3u, state_at(3u) + 1u); }
}
