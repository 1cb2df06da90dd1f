/* Copies memory with several threads. The destination is usually new memory, and the system takes longer to fault in its pages
 * than one thread takes to fill them. `provide_bytes` faults them in before there is anything to copy; it does not change the
 * bytes. Also compares memory.
 *
 * In: addresses, bytes, and the most threads. No Python code runs meanwhile, so no interrupt leaves a copying thread behind.
 * Included after platform.h.
 */
#include "platform.h"

enum { MOST_COPIERS = 8, LEAST_PART = 1 << 20, LEAST_PAGE = 4096 };

typedef struct {
  char *to;
  const char *from;
  size_t count;
  int differs;
} CopyPart;

static platform_thread_result_t PLATFORM_THREAD_CALL copy_part(void *argument) {
  const CopyPart *part = argument;
  memcpy(part->to, part->from, part->count);
  return 0;
}

static platform_thread_result_t PLATFORM_THREAD_CALL provide_part(void *argument) {
  const CopyPart *part = argument;
  for (size_t i = 0; i < part->count; i += LEAST_PAGE) {
    volatile char *byte = part->to + i;
    *byte = *byte;
  }
  return 0;
}

static platform_thread_result_t PLATFORM_THREAD_CALL compare_part(void *argument) {
  CopyPart *part = argument;
  part->differs = memcmp(part->to, part->from, part->count) != 0;
  return 0;
}

/* Runs `work` on parts of the memory. Returns whether a part differs, if `work` compares. */
static int in_parts(platform_thread_function_t work, uint64_t to, uint64_t from, size_t count, size_t threads) {
  CopyPart parts[MOST_COPIERS];
  platform_thread_t started[MOST_COPIERS];
  size_t most = count / LEAST_PART;
  if (threads > most) threads = most;
  if (threads > MOST_COPIERS) threads = MOST_COPIERS;
  if (threads < 1) threads = 1;
  size_t each = count / threads, begun = 0;
  for (size_t i = 0; i < threads; i++) {
    parts[i].to = (char *)(uintptr_t)to + i * each;
    parts[i].from = (const char *)(uintptr_t)from + i * each;
    parts[i].count = i + 1 < threads ? each : count - i * each;
    parts[i].differs = 0;
  }
  while (begun + 1 < threads && platform_thread_begin(&started[begun], work, &parts[begun])) begun++;
  for (size_t i = begun; i < threads; i++) work(&parts[i]);
  for (size_t i = 0; i < begun; i++) platform_thread_end(started[i]);
  int differs = 0;
  for (size_t i = 0; i < threads; i++) differs |= parts[i].differs;
  return differs;
}

PLATFORM_MAYBE_UNUSED static void copy_bytes(uint64_t to, uint64_t from, size_t count, size_t threads) {
  in_parts(copy_part, to, from, count, threads);
}

PLATFORM_MAYBE_UNUSED static void provide_bytes(uint64_t to, size_t count, size_t threads) {
  in_parts(provide_part, to, to, count, threads);
}

PLATFORM_MAYBE_UNUSED static int same_bytes(uint64_t one, uint64_t other, size_t count, size_t threads) {
  return !in_parts(compare_part, one, other, count, threads);
}
