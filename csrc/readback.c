/* Waits for a mapped staging buffer and copies from it, without Python, because the GPU may be idle until the waiting thread
 * goes on.
 *
 * In: buffers to map, ranges of the mapped memory; or small buffers to read. Out: the status of the map, bytes at other
 * addresses.
 *
 * Invariants: the caller and the library both own an Answer. The library calls back once or, after the loss of a device, never.
 * The second owner frees the Answer, so a late callback finds it. A staging buffer that could not be read is never reused.
 * Included after submit.c.
 */
#include "copy.c"

enum { MOST_TEXT = 512, SPAN_WORDS = 3 };
enum { ALLOW_PROCESS_EVENTS = 2, SUCCESS = 1, MAP_READ = 1 }; /* WGPUCallbackMode, WGPUMapAsyncStatus, WGPUMapMode */

typedef struct {
  const void *next;
  int mode;
  void (*callback)(int status, Text message, void *userdata1, void *userdata2);
  void *userdata1, *userdata2;
} MapInfo;
typedef Future (*map_async)(handle buffer, uint64_t mode, size_t offset, size_t size, MapInfo info);
typedef const void *(*mapped_range)(handle buffer, size_t offset, size_t size);

typedef struct {
  int64_t status, owners; /* WGPUMapAsyncStatus; 0 until the callback */
  uint64_t ticket;        /* to wait for */
  char text[MOST_TEXT];   /* of an error */
} Answer;

static void answer_end(Answer *answer) {
  if (platform_add(&answer->owners, -1) == 0) free(answer);
}

/* The library's callback, on any thread that waits or polls. */
static void answered(int status, Text message, void *userdata1, void *userdata2) {
  Answer *answer = userdata1;
  (void)userdata2;
  size_t length = message.data == NULL ? 0 : message.length == SIZE_MAX ? strlen(message.data) : message.length;
  if (length >= MOST_TEXT) length = MOST_TEXT - 1;
  if (length) memcpy(answer->text, message.data, length);
  platform_write(&answer->status, status);
  answer_end(answer);
}

/* Requests a map of the first `length` bytes of a buffer. `submitted`: the ticket of its last submission. NULL if out of
 * memory. */
static Answer *map_buffer(Queue *queue, uint64_t buffer, uint64_t mode, size_t length, uint64_t submitted) {
  Answer *answer = calloc(1, sizeof *answer);
  if (answer == NULL) return NULL;
  answer->owners = 2;
  MapInfo info = {NULL, ALLOW_PROCESS_EVENTS, answered, answer, NULL};
  Future future = POINTER(map_async, queue->functions[MAP_ASYNC])(POINTER(handle, buffer), mode, 0, length, info);
  answer->ticket = queue->tickets->by_future ? future.id : submitted;
  return answer;
}

/* Waits for the callback and returns its status. Returns 0 if it has not run by then, for example because another thread that
 * waited too is about to run it: call again. */
static int64_t wait_for(Queue *queue, const Answer *answer) {
  queue->tickets->wait(queue->tickets, answer->ticket);
  for (int k = 0; k < 1000 && !platform_read(&answer->status); k++) queue->tickets->look(queue->tickets);
  return platform_read(&answer->status);
}

/* Copies `count` rows (offset, address, bytes) from the first `length` bytes of a mapped buffer, and unmaps it. Returns whether
 * it was mapped. */
static int copy_out(Queue *queue, uint64_t buffer, size_t length, const uint64_t *rows, size_t count) {
  handle staging = POINTER(handle, buffer);
  uint64_t from = (uint64_t)(uintptr_t)POINTER(mapped_range, queue->functions[MAPPED_RANGE])(staging, 0, length);
  for (size_t i = 0; from && i < count; i++, rows += SPAN_WORDS) copy_bytes(rows[1], from + rows[0], rows[2], queue->copiers);
  if (from) POINTER(use, queue->functions[UNMAP])(staging);
  return from != 0;
}

/* ---- small reads */

/* Gives a staging buffer to `download` if its own is smaller and no thread uses that. Returns whether it did. */
static int leave_staging(Queue *queue, uint64_t buffer, uint64_t bytes) {
  if (bytes <= queue->staging_bytes || platform_exchange(&queue->reading, 1)) return 0;
  queue->staging = buffer;
  queue->staging_bytes = bytes;
  platform_write(&queue->reading, 0);
  return 1;
}

static size_t whole_words(uint64_t bytes) { return ((size_t)bytes + 3) & ~(size_t)3; }

/* Queues copies of buffers to the staging buffer; `downloaded` waits for them. Returns NULL if the staging buffer is too small
 * or in use, or if the library reported an error. */
static Answer *download(Queue *queue, const Part *parts, size_t count) {
  if (platform_read(&queue->lost) || platform_exchange(&queue->reading, 1)) return NULL;
  uint64_t rows[MOST_PARTS * COPY_WORDS], place = 0, ticket, before = errors_of_thread();
  for (size_t i = 0; i < count; place += whole_words(parts[i++].bytes)) {
    const uint64_t row[COPY_WORDS] = {parts[i].buffer, 0, queue->staging, place, whole_words(parts[i].bytes)};
    memcpy(rows + i * COPY_WORDS, row, sizeof row);
  }
  Answer *answer = NULL;
  if (place <= queue->staging_bytes) {
    uint64_t commands = encode(queue->functions, queue->device, rows, count, 0, NULL, 0);
    commands = unless_refused(queue, before, commands, RELEASE_COMMANDS);
    if (submit_last(queue, commands, &ticket)) answer = map_buffer(queue, queue->staging, MAP_READ, place, ticket);
  }
  if (answer == NULL) platform_write(&queue->reading, 0);
  return answer;
}

/* Waits for a map, frees its Answer, and stores the parts, which are consecutive in the buffer. Returns whether it did. */
static int store_parts(Queue *queue, uint64_t staging, Answer *answer, const Part *parts, size_t count) {
  uint64_t spans[MOST_PARTS * SPAN_WORDS], place = 0;
  for (size_t i = 0; i < count; place += whole_words(parts[i++].bytes)) {
    const uint64_t span[SPAN_WORDS] = {place, parts[i].to, parts[i].bytes};
    memcpy(spans + i * SPAN_WORDS, span, sizeof span);
  }
  int64_t status;
  while (!(status = wait_for(queue, answer)) && !platform_read(&queue->lost)) continue;
  answer_end(answer);
  if (status != SUCCESS) return 0;
  queue_hold(queue); /* code that destroys the device, which unmaps its memory, takes this lock too */
  int good = usable(queue) && copy_out(queue, staging, place, spans, count);
  queue_release(queue);
  if (good) platform_add(&queue->downloads, (int64_t)count);
  return good;
}

/* Waits for the copies of `download` and stores them. Returns whether it did. */
static int downloaded(Queue *queue, Answer *answer, const Part *parts, size_t count) {
  int good = store_parts(queue, queue->staging, answer, parts, count);
  if (good) platform_write(&queue->reading, 0);
  return good;
}
