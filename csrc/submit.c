/* Submits command buffers, and encodes and submits work that is known beforehand, without Python.
 *
 * In: a Queue, filled by device/queue.py, and a Work, filled by device/work.py, which keep alive what they point to. Out: work
 * that is submitted, or 0 when nothing was, because wgpu-native complained: Python then finds out why, and raises.
 * Invariants: what one call submits is submitted in a row, whatever other threads do; nothing is submitted to a device that is
 * known to be lost, which would end the process; no lock is held while Python runs, except by callbacks of wgpu-native.
 * Included behind encode.c.
 */
#include "queue.h"

/* The same dispatches in every run, and the same copies: `before` rows for those in front of them, then `after` rows.
 *
 * `ahead` is the encoder of the next run, in which a thread that had to wait has recorded it, or 0. It is not finished: wgpu-native
 * keeps what a command buffer has that is never submitted, buffers too. Python owns it (device/work.py) and lets go of it only when
 * `ahead` is 0 and then `users` is 0: who took it has finished it. */
typedef struct {
  Queue *queue;
  const uint64_t *dispatches;
  size_t count, per_submission;
  const uint64_t *copies;
  size_t before, after;
  int64_t ahead, users;
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
  if (good) platform_write(&queue->unflushed, 0);
  if (good && !count) *index = give(to, 0, NULL);
  for (size_t i = 0; good && i < count; i++) {
    handle one = POINTER(handle, commands[i]);
    *index = give(to, 1, &one);
  }
  queue_release(queue);
  return good;
}

/* So many bytes more have been written. They wait in wgpu-native's own memory until the next submit: how many do. */
static int64_t wrote(Queue *queue, int64_t bytes) { return platform_add(&queue->unflushed, bytes); }

/* Writes words to a buffer, behind all that was submitted; they are copied before this returns. Whether it did. */
static int upload(uint64_t to, uint64_t buffer, uint64_t offset, const void *data, size_t bytes) {
  Queue *queue = POINTER(Queue *, to);
  if (platform_read(&queue->lost)) return 0;
  uint64_t complaints = reported(queue), index;
  POINTER(write_buffer, queue->functions[WRITE_BUFFER])(POINTER(handle, queue->queue), POINTER(handle, buffer), offset, data, bytes);
  if (reported(queue) != complaints) return 0;
  platform_add(&queue->uploads, 1);
  return wrote(queue, (int64_t)bytes) < queue->most_unflushed || submit(queue, NULL, 0, &index);
}

/* What was made, or 0 when wgpu-native has complained since there were so many `complaints`: then it is released. */
static uint64_t unless_refused(const Queue *queue, uint64_t complaints, uint64_t made, int release) {
  if (reported(queue) == complaints) return made;
  POINTER(use, queue->functions[release])(POINTER(handle, made));
  return 0;
}

/* Records all of a work that is one submission. The encoder, or 0 when wgpu-native complained. */
static uint64_t record_ahead(const Work *work) {
  const Queue *queue = work->queue;
  if (platform_read(&queue->lost)) return 0;
  uint64_t complaints = reported(queue);
  uint64_t encoder = record(queue->functions, queue->device, work->copies, work->before, work->after, work->dispatches, work->count);
  return unless_refused(queue, complaints, encoder, RELEASE_ENCODER);
}

/* Finishes and submits what was recorded. Whether it did. */
static int run_ahead(Queue *queue, uint64_t encoder) {
  if (platform_read(&queue->lost)) return 0;
  uint64_t complaints = reported(queue), index;
  uint64_t commands = unless_refused(queue, complaints, finish(queue->functions, encoder), RELEASE_COMMANDS);
  if (!commands) return 0;
  int good = submit(queue, &commands, 1, &index);
  POINTER(use, queue->functions[RELEASE_COMMANDS])(POINTER(handle, commands));
  return good;
}

/* The next run of `work` is what this encoder has. */
static void set_ahead(Work *work, uint64_t encoder) { platform_write(&work->ahead, (int64_t)encoder); }

/* Whether the encoder that `set_ahead` was given has been finished, or never was any. */
static int is_behind(const Work *work) { return platform_read(&work->ahead) == 0 && platform_read(&work->users) == 0; }

/* Encodes and submits. Whether it did; nothing has run otherwise. */
static int run_now(Work *work) {
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
  if (good) platform_add(&queue->submits, (int64_t)parts);
  return good;
}

/* Submits what was recorded ahead, else what is recorded now. Whether it did; nothing has run otherwise. */
static int run(Work *work) {
  Queue *queue = work->queue;
  platform_add(&work->users, 1);
  uint64_t ahead = (uint64_t)platform_exchange(&work->ahead, 0);
  int good = ahead ? run_ahead(queue, ahead) : run_now(work);
  platform_add(&work->users, -1);
  if (good) {
    if (ahead) {
      platform_add(&queue->submits, 1);
      platform_add(&queue->runs_ahead, 1);
    }
    platform_add(&queue->dispatches, (int64_t)work->count);
    platform_write(&queue->last[platform_add(&queue->runs, 1) % LAST], (int64_t)(uintptr_t)work);
  }
  return good;
}
