/* Submits command buffers, and encodes and submits prepared work, without Python.
 *
 * In: a Queue, filled by device/queue.py, and a Work, filled by device/work.py. Both Python objects keep alive what they point
 * to. Out: submitted work, or a refusal because the library reported an error. Python then finds the reason and raises.
 *
 * Invariants:
 *
 * - Work that uses the same buffers does not come between the submissions of one call (Turn).
 * - Nothing runs twice.
 * - Nothing is submitted to a device that is known to be lost, which would abort the process.
 * - No lock is held while Python runs, except by callbacks of the library.
 *
 * Included after encode.c.
 */
#include "reported_errors.h"
#include "outcomes.h"
#include "queue.h"

/* A run is submitted in parts. Each is longer than all before it together. So the GPU starts with the first dispatches while
 * the library finishes the others, which takes about as long as small kernels run on a GPU. */
enum { FIRST_PART = 8, TIMES = 3, MOST_AHEAD = 8 };

/* The lock of a graph, which a thread holds until all work of its call is submitted. The plans of a graph keep intermediate
 * values and copies of tensors in the same buffers, which no other work writes. A run's tensors belong to its caller meanwhile.
 * So other threads may submit other work between the parts of a run. They wait for the queue only during one submit. A turn is
 * taken before the queue, and no thread holds two. */
typedef struct {
  platform_lock_t lock;
} Turn;

/* The numbers that dispatches read from the beginning of a buffer: a row of `bytes` for each run of a series. */
typedef struct {
  uint64_t buffer;
  const char *rows;
  size_t bytes;
} Numbers;

/* Dispatches and copies that are the same in every run: `before` rows of copies before the dispatches, then `after` rows. In a
 * series of runs with growing sizes, dispatches read different `numbers` in each, which are written first.
 *
 * `ahead` is how many parts of the next run are recorded in `encoders`, by a thread that was about to wait. They are not
 * finished, because wgpu-native keeps the memory of a command buffer that is never submitted, including its buffers. Python
 * owns the encoders (device/work.py). It releases them only after `ahead` and then `users` were 0, when no thread uses them. */
typedef struct {
  Queue *queue;
  Turn *turn;
  const uint64_t *dispatches;
  size_t count, per_submission;
  const uint64_t *copies;
  size_t before, after;
  const Numbers *numbers;
  size_t numbered; /* buffers with such numbers */
  uint64_t encoders[MOST_AHEAD];
  int64_t ahead, users;
} Work;

typedef void (*write_buffer)(handle queue, handle buffer, uint64_t offset, const void *data, size_t size);

static void queue_begin(Queue *queue) { platform_lock_begin(&queue->lock); }
static void queue_end(Queue *queue) { platform_lock_end(&queue->lock); }

/* Nothing is submitted between these two. */
static void queue_hold(Queue *queue) { platform_take(&queue->lock); }
static void queue_release(Queue *queue) { platform_give(&queue->lock); }

static void turn_begin(Turn *turn) { platform_lock_begin(&turn->lock); }
static void turn_end(Turn *turn) { platform_lock_end(&turn->lock); }
static void turn_take(Turn *turn) {
  if (turn != NULL) platform_take(&turn->lock);
}
static void turn_give(Turn *turn) {
  if (turn != NULL) platform_give(&turn->lock);
}

/* Returns whether the device can be used. Detects a loss before its report, because writing zero bytes only reports an error. */
static int usable(Queue *queue) {
  if (platform_read(&queue->lost)) return 0;
  uint64_t before = errors_of_thread();
  char none = 0;
  handle to = POINTER(handle, queue->queue), nothing = POINTER(handle, queue->nothing);
  POINTER(write_buffer, queue->functions[WRITE_BUFFER])(to, nothing, 0, &none, 0);
  return errors_of_thread() == before && !platform_read(&queue->lost);
}

/* Submits a command buffer, or the uploads so far for 0. Returns the ticket. Call it under the lock, with a usable device. */
static uint64_t submit_one(Queue *queue, uint64_t commands) {
  handle one = POINTER(handle, commands);
  platform_write(&queue->unflushed, 0);
  return queue->tickets->submit(queue->tickets, one != NULL, one != NULL ? &one : NULL);
}

/* Submits command buffers in order, or the uploads so far if there are none. `ticket` receives the last ticket. `turn`: that of
 * the graph, or NULL for work that shares no buffers. Returns whether it did. */
static int submit(Queue *queue, Turn *turn, const uint64_t *commands, size_t count, uint64_t *ticket) {
  turn_take(turn);
  queue_hold(queue);
  int good = usable(queue);
  if (good && !count) *ticket = submit_one(queue, 0);
  for (size_t i = 0; good && i < count; i++) *ticket = submit_one(queue, commands[i]);
  queue_release(queue);
  turn_give(turn);
  return good;
}

/* Submits a command buffer and releases it. 0 is none. Returns whether it was submitted. */
static int submit_last(Queue *queue, uint64_t commands, uint64_t *ticket) {
  if (!commands) return 0;
  int good = submit(queue, NULL, &commands, 1, ticket);
  POINTER(use, queue->functions[RELEASE_COMMANDS])(POINTER(handle, commands));
  return good;
}

/* Counts written bytes, which wait in the library's own memory until the next submit. Returns how many wait. */
static int64_t wrote(Queue *queue, int64_t bytes) { return platform_add(&queue->unflushed, bytes); }

/* Writes words to a buffer, after everything submitted before. They are copied before this returns. Returns whether it did. */
static int upload(uint64_t to, uint64_t buffer, uint64_t offset, const void *data, size_t bytes) {
  Queue *queue = POINTER(Queue *, to);
  if (platform_read(&queue->lost)) return 0;
  uint64_t before = errors_of_thread(), ticket;
  POINTER(write_buffer, queue->functions[WRITE_BUFFER])(POINTER(handle, queue->queue), POINTER(handle, buffer), offset, data, bytes);
  if (errors_of_thread() != before) return 0;
  platform_add(&queue->uploads, 1);
  return wrote(queue, (int64_t)bytes) < queue->most_unflushed || submit(queue, NULL, NULL, 0, &ticket);
}

/* Returns a new object. If the thread has more errors than `before`, releases the object and returns 0. */
static uint64_t unless_refused(const Queue *queue, uint64_t before, uint64_t made, int release) {
  if (errors_of_thread() == before) return made;
  POINTER(use, queue->functions[release])(POINTER(handle, made));
  return 0;
}

/* Returns the end of the part that begins at a dispatch. */
static size_t part_end(const Work *work, size_t first) {
  size_t rest = work->count - first, size = first ? TIMES * first : FIRST_PART;
  if (rest < 2 * size) size = rest;
  return first + (work->per_submission && work->per_submission < size ? work->per_submission : size);
}

/* The arguments of `record` for a part. */
#define PART(work, first, end) \
  (work)->queue->functions, (work)->queue->device, (work)->copies + ((first) ? (work)->before * COPY_WORDS : 0), \
      (first) ? 0 : (work)->before, (end) < (work)->count ? 0 : (work)->after, (work)->dispatches + (first) * DISPATCH_WORDS, \
      (end) - (first)

/* Returns the number of parts of a work. */
static size_t parts(const Work *work) {
  size_t found = 1;
  for (size_t end = part_end(work, 0); end < work->count; end = part_end(work, end)) found++;
  return found;
}

/* Records the part that begins at the dispatch `first`, and sets `first` to the beginning of the next one. Returns the encoder;
 * 0 if the library reported an error. */
static uint64_t record_ahead(const Work *work, size_t *first) {
  const Queue *queue = work->queue;
  if (platform_read(&queue->lost)) return 0;
  uint64_t before = errors_of_thread();
  size_t end = part_end(work, *first);
  uint64_t encoder = record(PART(work, *first, end));
  *first = end;
  return unless_refused(queue, before, encoder, RELEASE_ENCODER);
}

/* Sets the encoders with the next run of `work`. */
static void set_ahead(Work *work, const uint64_t *encoders, size_t count) {
  memcpy(work->encoders, encoders, count * sizeof *encoders);
  platform_write(&work->ahead, (int64_t)count);
}

/* Returns whether the encoders of `set_ahead` are finished, or there were none. */
static int is_behind(const Work *work) { return platform_read(&work->ahead) == 0 && platform_read(&work->users) == 0; }

/* Returns the command buffer of a part: finishes its encoder if it was recorded, otherwise encodes it. Returns 0 if the library
 * reported an error, because submitting an invalid command buffer may abort the process. */
static uint64_t commands_of(const Work *work, size_t first, size_t end, uint64_t encoder) {
  const Queue *queue = work->queue;
  uint64_t before = errors_of_thread();
  uint64_t made = encoder ? finish(queue->functions, encoder) : encode(PART(work, first, end));
  return unless_refused(queue, before, made, RELEASE_COMMANDS);
}

/* Submits a part, recorded in `encoder` or encoded now. Returns whether it did. */
static int run_part(Work *work, size_t first, size_t end, uint64_t encoder) {
  uint64_t ticket, commands = platform_read(&work->queue->lost) ? 0 : commands_of(work, first, end, encoder);
  return submit_last(work->queue, commands, &ticket);
}

/* Writes the numbers that dispatches read in this run of a series. Returns whether it did. */
static int write_numbers(const Work *work, size_t number) {
  Queue *queue = work->queue;
  if (platform_read(&queue->lost)) return 0;
  uint64_t before = errors_of_thread();
  for (size_t i = 0; i < work->numbered; i++) {
    const Numbers *it = &work->numbers[i];
    write_buffer write = POINTER(write_buffer, queue->functions[WRITE_BUFFER]);
    write(POINTER(handle, queue->queue), POINTER(handle, it->buffer), 0, it->rows + number * it->bytes, it->bytes);
  }
  return errors_of_thread() == before;
}

/* Submits the recorded parts, and encodes and submits the others. `number`: that of the run in a series. Returns the outcome. */
static int run(Work *work, size_t number) {
  Queue *queue = work->queue;
  platform_add(&work->users, 1);
  size_t ahead = (size_t)platform_exchange(&work->ahead, 0), first = 0, part = 0;
  turn_take(work->turn);
  int good = work->numbered == 0 || write_numbers(work, number);
  while (good) {
    size_t end = part_end(work, first);
    good = run_part(work, first, end, part < ahead ? work->encoders[part] : 0);
    if (good) first = end, part++;
    if (first >= work->count) break;
  }
  turn_give(work->turn);
  platform_add(&work->users, -1);
  if (!good) return part ? BEGUN : REFUSED;
  platform_add(&queue->submits, (int64_t)part);
  platform_add(&queue->runs_ahead, ahead != 0);
  platform_add(&queue->dispatches, (int64_t)work->count);
  platform_write(&queue->last[platform_add(&queue->runs, 1) % LAST], (int64_t)(uintptr_t)work);
  return DONE;
}
