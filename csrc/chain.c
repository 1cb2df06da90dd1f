/* Works, one behind another in one submission, and a small buffer that is read behind them: a token of a decoder.
 *
 * In: a Chain, filled by device/chain.py, and works that their memos keep meanwhile (runs.c). Out: they are submitted, or nothing is; then
 * the bytes that were read.
 * Invariants: those of submit.c. A chain is submitted whole: its caller submits the next one before it waits for this one, so the GPU has
 * work while the next one is recorded. Its staging buffer is its own, and one submission uses it at a time. Included behind readback.c.
 */
typedef struct {
  Queue *queue;
  Part written, read; /* bytes of the host that a buffer gets before (0 bytes: none), and a buffer's that the host gets behind it */
  uint64_t staging;
  Answer *answer; /* of what was submitted and not read yet */
} Chain;

/* Ends a chain that may be on its way. */
static void chain_end(Chain *chain) {
  if (chain->answer != NULL) answer_end(chain->answer);
}

/* The command buffer of works, which share a pass where no copies come between, and of the copy that is read. */
static uint64_t commands_of_chain(const Chain *chain, Work *const *works, size_t count) {
  const uint64_t last[COPY_WORDS] = {chain->read.buffer, 0, chain->staging, 0, whole_words(chain->read.bytes)};
  Encoder to = begin_encoder(chain->queue->functions, chain->queue->device);
  for (size_t i = 0; i < count; i++) {
    const Work *it = works[i];
    encode_rows(&to, it->copies, it->before, it->after, it->dispatches, it->count);
  }
  encode_copies(&to, last, 1);
  return end_encoder(&to);
}

/* Takes the turns of works, each once and in the order of their addresses: no other code has two. How many. */
static size_t take_turns(Work *const *works, size_t count, Turn **turns) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    size_t place = 0;
    while (place < found && turns[place] < works[i]->turn) place++;
    if (works[i]->turn == NULL || (place < found && turns[place] == works[i]->turn)) continue;
    memmove(turns + place + 1, turns + place, (found++ - place) * sizeof *turns);
    turns[place] = works[i]->turn;
  }
  for (size_t i = 0; i < found; i++) turn_take(turns[i]);
  return found;
}

/* Submits a chain; `numbers` are those of the works' runs in their series. What came of it: DONE, or REFUSED. */
static int submit_chain(void *its, void *const *of_memos, const size_t *numbers, size_t count) {
  Chain *chain = its;
  Queue *queue = chain->queue;
  Work *works[MOST_CHAINED];
  Turn *turns[MOST_CHAINED];
  size_t dispatches = 0;
  for (size_t i = 0; i < count; i++) {
    works[i] = of_memos[i];
    dispatches += works[i]->count;
    if (works[i]->queue != queue || (works[i]->per_submission && works[i]->per_submission < works[i]->count)) return REFUSED;
  }
  if (chain->answer != NULL || platform_read(&queue->lost)) return REFUSED;
  const Part *first = &chain->written;
  if (first->bytes && !upload((uint64_t)(uintptr_t)queue, first->buffer, 0, (const void *)(uintptr_t)first->to, first->bytes)) return REFUSED;
  uint64_t before = errors_of_thread(), ticket;
  uint64_t commands = unless_refused(queue, before, commands_of_chain(chain, works, count), RELEASE_COMMANDS);
  if (!commands) return REFUSED;
  size_t held = take_turns(works, count, turns);
  int good = 1;
  for (size_t i = 0; good && i < count; i++) good = works[i]->numbered == 0 || write_numbers(works[i], numbers[i]);
  good = good && submit(queue, NULL, &commands, 1, &ticket);
  while (held--) turn_give(turns[held]);
  POINTER(use, queue->functions[RELEASE_COMMANDS])(POINTER(handle, commands));
  if (!good) return REFUSED;
  chain->answer = map_buffer(queue, chain->staging, MAP_READ, whole_words(chain->read.bytes), ticket);
  platform_add(&queue->submits, 1);
  platform_add(&queue->dispatches, (int64_t)dispatches);
  return DONE;
}

/* Waits for what was submitted and stores what is read. Whether it did. */
static int read_chain(Chain *chain) {
  Answer *answer = chain->answer;
  if (answer == NULL) return 0;
  chain->answer = NULL;
  return store_parts(chain->queue, chain->staging, answer, &chain->read, 1);
}
