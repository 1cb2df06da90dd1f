/* Submits command buffers, and encodes and submits work that is known beforehand, without Python.
 *
 * In: a Queue, filled by device/queue.py, and a Work, filled by device/work.py, which keep alive what they point to. Out: work
 * that is submitted, or 0 when nothing was, because wgpu-native complained: Python then finds out why, and raises.
 * Invariants: what one call submits is submitted in a row, whatever other threads do; nothing is submitted to a device that is
 * known to be lost, which would end the process; no lock is held while Python runs, except by callbacks of wgpu-native.
 * Included behind encode.c.
 */
#include "platform.h"

typedef struct {
  const uint64_t *functions; /* as in encode.c */
  uint64_t device, queue;
  uint64_t nothing;          /* a buffer that nobody reads */
  const uint64_t *reported;  /* how many errors wgpu-native has reported in this process */
  int64_t lost;              /* whether the device is known to be lost */
  int64_t submits, dispatches; /* by `run` */
  platform_lock_t lock;
} Queue;

/* The same dispatches in every run, and the same copies: `before` rows for those in front of them, then `after` rows. */
typedef struct {
  Queue *queue;
  const uint64_t *dispatches;
  size_t count, per_submission;
  const uint64_t *copies;
  size_t before, after;
} Work;

typedef void (*write_buffer)(handle queue, handle buffer, uint64_t offset, const void *data, size_t size);
typedef uint64_t (*submit_commands)(handle queue, size_t count, const handle *commands);

static void queue_begin(Queue *queue) { platform_lock_begin(&queue->lock); }
static void queue_end(Queue *queue) { platform_lock_end(&queue->lock); }

/* Between these nothing is submitted. */
static void queue_hold(Queue *queue) { platform_take(&queue->lock); }
static void queue_release(Queue *queue) { platform_give(&queue->lock); }

/* A number that Python code changes meanwhile. */
static uint64_t reported(const Queue *queue) { return *(const volatile uint64_t *)queue->reported; }

/* Whether the device can be used, also when nobody was told of a loss yet: writing nothing only complains. */
static int usable(Queue *queue) {
  if (platform_read(&queue->lost)) return 0;
  uint64_t before = reported(queue);
  char none = 0;
  handle to = POINTER(handle, queue->queue), nothing = POINTER(handle, queue->nothing);
  POINTER(write_buffer, queue->functions[WRITE_BUFFER])(to, nothing, 0, &none, 0);
  return reported(queue) == before && !platform_read(&queue->lost);
}

/* Submits command buffers one after the other, or with none of them the uploads so far; `index` becomes the last one's.
 * Whether it did. */
static int submit(Queue *queue, const uint64_t *commands, size_t count, uint64_t *index) {
  submit_commands give = POINTER(submit_commands, queue->functions[SUBMIT]);
  handle to = POINTER(handle, queue->queue);
  queue_hold(queue);
  int good = usable(queue);
  if (good && !count) *index = give(to, 0, NULL);
  for (size_t i = 0; good && i < count; i++) {
    handle one = POINTER(handle, commands[i]);
    *index = give(to, 1, &one);
  }
  queue_release(queue);
  return good;
}

/* Encodes and submits. Whether it did; nothing has run otherwise. */
static int run(Work *work) {
  Queue *queue = work->queue;
  const uint64_t *functions = queue->functions;
  size_t step = work->per_submission && work->per_submission < work->count ? work->per_submission : work->count;
  size_t parts = step ? (work->count + step - 1) / step : 1;
  uint64_t few[16] = {0}, index, *commands = parts <= 16 ? few : malloc(parts * sizeof *commands);
  if (commands == NULL || platform_read(&queue->lost)) {
    if (commands != few) free(commands);
    return 0;
  }
  uint64_t complaints = reported(queue);
  for (size_t i = 0; i < parts; i++) {
    size_t first = i * step, rest = work->count - first;
    const uint64_t *rows = work->dispatches + first * DISPATCH_WORDS;
    const uint64_t *copies = work->copies + (i ? work->before * COPY_WORDS : 0);
    size_t before = i ? 0 : work->before, after = i + 1 < parts ? 0 : work->after;
    commands[i] = encode(functions, queue->device, copies, before, after, rows, rest < step ? rest : step);
  }
  /* An invalid command buffer, which ends the process, has been complained about. */
  int good = reported(queue) == complaints && submit(queue, commands, parts, &index);
  for (size_t i = 0; i < parts; i++) POINTER(use, functions[RELEASE_COMMANDS])(POINTER(handle, commands[i]));
  if (commands != few) free(commands);
  if (good) {
    platform_add(&queue->submits, (int64_t)parts);
    platform_add(&queue->dispatches, (int64_t)work->count);
  }
  return good;
}
