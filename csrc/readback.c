/* Waits for a staging buffer that the host maps, and copies out of it, without Python: a thread that has waited is in a hurry.
 *
 * In: what a library answers to wgpuBufferMapAsync (device/mapped.py asks), ranges of the mapped memory. Out: the status of the
 * answer, bytes at other addresses.
 * Invariant: an Answer belongs to whoever asked and to the library, which calls back once or, when the device has gone, never: it
 * ends with the second one of both, so a call that comes late finds it.
 */
#include "platform.h"
#include "copy.c"
#include "tickets.h"

enum { MOST_TEXT = 512, SPAN_WORDS = 3 };

typedef void *handle;
typedef struct { const char *data; size_t length; } Text;
typedef const void *(*mapped_range)(handle buffer, size_t offset, size_t size);
typedef void (*use)(handle object);

typedef struct {
  int64_t status, owners; /* WGPUMapAsyncStatus; 0 until there is an answer */
  char text[MOST_TEXT];   /* of an error */
} Answer;

/* Functions of a library, in the order of device/mapped.py. */
typedef struct { uint64_t mapped_range, unmap; } Functions;

#define POINTER(type, word) ((type)(uintptr_t)(word))

static Answer *answer_begin(void) {
  Answer *answer = calloc(1, sizeof *answer);
  if (answer != NULL) answer->owners = 2;
  return answer;
}

static void answer_end(Answer *answer) {
  if (platform_add(&answer->owners, -1) == 0) free(answer);
}

/* The library's call, on any thread that waits or looks. */
static void answered(int status, Text message, void *userdata1, void *userdata2) {
  Answer *answer = userdata1;
  (void)userdata2;
  size_t length = message.data == NULL ? 0 : message.length == SIZE_MAX ? strlen(message.data) : message.length;
  if (length >= MOST_TEXT) length = MOST_TEXT - 1;
  if (length) memcpy(answer->text, message.data, length);
  platform_write(&answer->status, status);
  answer_end(answer);
}

/* Returns when what `ticket` is for is done; gives the status of the answer. 0 when it has not come by then, as where another
 * thread, which waited too, is about to take it: to be asked again. */
static int64_t wait_for(Tickets *tickets, uint64_t ticket, const Answer *answer) {
  tickets->wait(tickets, ticket);
  for (int k = 0; k < 1000 && !platform_read(&answer->status); k++) tickets->look(tickets);
  return platform_read(&answer->status);
}

/* Copies `count` rows (offset, address, bytes) out of the first `length` bytes of a mapped buffer, which is unmapped then. Whether it
 * was mapped. */
static int copy_out(const Functions *functions, uint64_t buffer, size_t length, const uint64_t *rows, size_t count, size_t threads) {
  handle staging = POINTER(handle, buffer);
  uint64_t from = (uint64_t)(uintptr_t)POINTER(mapped_range, functions->mapped_range)(staging, 0, length);
  for (size_t i = 0; from && i < count; i++, rows += SPAN_WORDS) copy_bytes(rows[1], from + rows[0], rows[2], threads);
  if (from) POINTER(use, functions->unmap)(staging);
  return from != 0;
}
