/* Encodes and submits the iterations of a loop, many in one command buffer, without Python.
 *
 * In: what two iterations in turn do, one reading the states where the other stores them; filled by device/rounds.py. Out: work that is
 * submitted, or that it was not. Invariants: those of submit.c; the dispatches of iterations without copies share one pass, because
 * WebGPU runs dispatches of a pass one after another where they use the same buffers. Included behind submit.c.
 */

/* Words of a copy: (source, offset, step, destination, offset, step, bytes). A step is added for each iteration before. */
enum { STEPPED_WORDS = 7 };

/* One iteration: rows as in encode.c, and copies in front of the dispatches and behind them. */
typedef struct {
  const uint64_t *dispatches, *before, *after;
  size_t count, befores, afters;
} Round;

/* Copies of iteration `number`: each is one of encode.c. */
static void encode_stepped(Encoder *to, const uint64_t *rows, size_t count, uint64_t number) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t *row = rows + i * STEPPED_WORDS;
    const uint64_t copy[COPY_WORDS] = {row[0], row[1] + number * row[2], row[3], row[4] + number * row[5], row[6]};
    encode_copies(to, copy, 1);
  }
}

/* Encodes iterations from number `*next` to `end`, until there are `most` dispatches. The command buffer, or 0 if the library
 * reported an error. */
static uint64_t encode_rounds(const Queue *queue, const Round *two, uint64_t first, uint64_t *next, uint64_t end, size_t most) {
  uint64_t before = errors_of_thread();
  Encoder to = begin_encoder(queue->functions, queue->device);
  for (size_t encoded = 0; *next < end && encoded < most; ++*next) {
    const Round *it = &two[(first + *next) & 1];
    encode_stepped(&to, it->before, it->befores, *next);
    encode_dispatches(&to, it->dispatches, it->count);
    encode_stepped(&to, it->after, it->afters, *next);
    encoded += it->count + it->befores + it->afters + 1;
  }
  return unless_refused(queue, before, end_encoder(&to), RELEASE_COMMANDS);
}

/* Submits `count` iterations, the first of which is of the kind `first` in turn. Parts grow, as those of a run do, to about `longest`
 * dispatches and copies. Whether it did. */
static int run_rounds(Queue *queue, Turn *turn, const Round *two, uint64_t first, uint64_t count, size_t longest) {
  uint64_t next = 0;
  size_t most = FIRST_PART;
  int good = !platform_read(&queue->lost);
  turn_take(turn);
  while (good && next < count) {
    uint64_t from = next, ticket;
    good = submit_last(queue, encode_rounds(queue, two, first, &next, count, most), &ticket);
    if (good) {
      platform_add(&queue->submits, 1);
      for (; from < next; from++) platform_add(&queue->dispatches, (int64_t)two[(first + from) & 1].count);
    }
    most = most * TIMES < longest ? most * TIMES : longest;
  }
  turn_give(turn);
  return good;
}
