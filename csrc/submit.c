/* Submits command buffers, and encodes and submits work that is known beforehand, without Python.
 *
 * In: a Queue, filled by device/queue.py, and a Work, filled by device/work.py, which keep alive what they point to. Out: work
 * that is submitted, or that it was not, because the library complained: Python then finds out why, and raises.
 * Invariants: between what one call submits comes nothing that uses the same buffers (Turn); nothing runs twice; nothing is submitted
 * to a device that is known to be lost, which would end the process; no lock is held while Python runs, except by callbacks of
 * the library. Included behind encode.c.
 */
#include "complaints.h"
#include "outcomes.h"
#include "queue.h"

/* A run is submitted in parts, each longer than all before it together: the GPU begins with the first dispatches while the library
 * finishes the others, for which it needs about as long as a GPU for small kernels. */
enum { FIRST_PART = 8, TIMES = 3, MOST_AHEAD = 8 };

/* A thread that submits work of one graph has its turn until all of that is submitted: its plans keep intermediate values in the same buffers,
 * and copies of tensors. Nothing else writes to them, and tensors of a run are its caller's meanwhile. So other threads may submit other
 * work between the parts of a run: they wait for the queue as long as one submit takes, and not until all parts are finished. A turn is
 * taken before the queue, and no thread has two. */
typedef struct {
  platform_lock_t lock;
} Turn;

/* The numbers that dispatches read in a buffer, from its beginning on: a row of `bytes` for each run of a series. */
typedef struct {
  uint64_t buffer;
  const char *rows;
  size_t bytes;
} Numbers;

/* The same dispatches in every run, and the same copies: `before` rows for those in front of them, then `after` rows. In a series of runs
 * whose sizes grow, dispatches read other `numbers` in each, which are written before.
 *
 * `ahead` says how many parts of the next run have been recorded by a thread that had to wait, in as many `encoders`. They are not
 * finished: wgpu-native keeps what a command buffer has that is never submitted, buffers too. Python owns them (device/work.py) and
 * releases them only when `ahead` is 0 and then `users` is 0: no thread uses them any more. */
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

/* Between these nothing is submitted. */
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

/* Whether the device can be used, also before a loss is known: writing nothing only complains. */
static int usable(Queue *queue) {
  if (platform_read(&queue->lost)) return 0;
  uint64_t before = complaints_of_thread();
  char none = 0;
  handle to = POINTER(handle, queue->queue), nothing = POINTER(handle, queue->nothing);
  POINTER(write_buffer, queue->functions[WRITE_BUFFER])(to, nothing, 0, &none, 0);
  return complaints_of_thread() == before && !platform_read(&queue->lost);
}

/* Submits a command buffer, or with 0 the uploads so far, while nothing else does, to a device that can be used. Its ticket. */
static uint64_t submit_one(Queue *queue, uint64_t commands) {
  handle one = POINTER(handle, commands);
  platform_write(&queue->unflushed, 0);
  return queue->tickets->submit(queue->tickets, one != NULL, one != NULL ? &one : NULL);
}

/* Submits command buffers one after the other, or with none of them the uploads so far; `ticket` becomes the last one's. `turn`: of the
 * graph whose work it is, NULL for what shares no buffers. Whether it did. */
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

/* So many bytes more have been written. They wait in the library's own memory until the next submit: how many do. */
static int64_t wrote(Queue *queue, int64_t bytes) { return platform_add(&queue->unflushed, bytes); }

/* Writes words to a buffer, behind all that was submitted; they are copied before this returns. Whether it did. */
static int upload(uint64_t to, uint64_t buffer, uint64_t offset, const void *data, size_t bytes) {
  Queue *queue = POINTER(Queue *, to);
  if (platform_read(&queue->lost)) return 0;
  uint64_t complaints = complaints_of_thread(), ticket;
  POINTER(write_buffer, queue->functions[WRITE_BUFFER])(POINTER(handle, queue->queue), POINTER(handle, buffer), offset, data, bytes);
  if (complaints_of_thread() != complaints) return 0;
  platform_add(&queue->uploads, 1);
  return wrote(queue, (int64_t)bytes) < queue->most_unflushed || submit(queue, NULL, NULL, 0, &ticket);
}

/* What was made, or 0 when the library has complained since there were so many `complaints`: then it is released. */
static uint64_t unless_refused(const Queue *queue, uint64_t complaints, uint64_t made, int release) {
  if (complaints_of_thread() == complaints) return made;
  POINTER(use, queue->functions[release])(POINTER(handle, made));
  return 0;
}

/* Where the part that begins at a dispatch ends. */
static size_t part_end(const Work *work, size_t first) {
  size_t rest = work->count - first, size = first ? TIMES * first : FIRST_PART;
  if (rest < 2 * size) size = rest;
  return first + (work->per_submission && work->per_submission < size ? work->per_submission : size);
}

/* What `record` is to be given for a part. */
#define PART(work, first, end) \
  (work)->queue->functions, (work)->queue->device, (work)->copies + ((first) ? (work)->before * COPY_WORDS : 0), \
      (first) ? 0 : (work)->before, (end) < (work)->count ? 0 : (work)->after, (work)->dispatches + (first) * DISPATCH_WORDS, \
      (end) - (first)

/* How many parts a work has. */
static size_t parts(const Work *work) {
  size_t found = 1;
  for (size_t end = part_end(work, 0); end < work->count; end = part_end(work, end)) found++;
  return found;
}

/* Records the part that begins at dispatch `first`, which becomes where the next one begins. The encoder, or 0 when the library
 * complained. */
static uint64_t record_ahead(const Work *work, size_t *first) {
  const Queue *queue = work->queue;
  if (platform_read(&queue->lost)) return 0;
  uint64_t complaints = complaints_of_thread();
  size_t end = part_end(work, *first);
  uint64_t encoder = record(PART(work, *first, end));
  *first = end;
  return unless_refused(queue, complaints, encoder, RELEASE_ENCODER);
}

/* The next run of `work` is what these encoders have. */
static void set_ahead(Work *work, const uint64_t *encoders, size_t count) {
  memcpy(work->encoders, encoders, count * sizeof *encoders);
  platform_write(&work->ahead, (int64_t)count);
}

/* Whether the encoders that `set_ahead` was given have been finished, or never were any. */
static int is_behind(const Work *work) { return platform_read(&work->ahead) == 0 && platform_read(&work->users) == 0; }

/* The command buffer of a part: finished, where it has been recorded in an encoder, or encoded now. 0 when the library complained:
 * submitting an invalid one may end the process. */
static uint64_t commands_of(const Work *work, size_t first, size_t end, uint64_t encoder) {
  const Queue *queue = work->queue;
  uint64_t complaints = complaints_of_thread();
  uint64_t made = encoder ? finish(queue->functions, encoder) : encode(PART(work, first, end));
  return unless_refused(queue, complaints, made, RELEASE_COMMANDS);
}

/* Submits a part, recorded in `encoder` or encoded now. Whether it did. */
static int run_part(Work *work, size_t first, size_t end, uint64_t encoder) {
  Queue *queue = work->queue;
  uint64_t commands = platform_read(&queue->lost) ? 0 : commands_of(work, first, end, encoder);
  if (!commands) return 0;
  queue_hold(queue);
  int good = usable(queue);
  if (good) submit_one(queue, commands);
  queue_release(queue);
  POINTER(use, queue->functions[RELEASE_COMMANDS])(POINTER(handle, commands));
  return good;
}

/* Writes what the dispatches read in the run with this number of a series. Whether it did. */
static int write_numbers(const Work *work, size_t number) {
  Queue *queue = work->queue;
  if (platform_read(&queue->lost)) return 0;
  uint64_t complaints = complaints_of_thread();
  for (size_t i = 0; i < work->numbered; i++) {
    const Numbers *it = &work->numbers[i];
    write_buffer write = POINTER(write_buffer, queue->functions[WRITE_BUFFER]);
    write(POINTER(handle, queue->queue), POINTER(handle, it->buffer), 0, it->rows + number * it->bytes, it->bytes);
  }
  return complaints_of_thread() == complaints;
}

/* Submits what was recorded ahead, else what is recorded now. `number`: of the run, in a series. What came of it. */
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
