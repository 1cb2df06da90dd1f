/* Copies memory with several threads: the memory that one copies to is new as a rule, and the system takes longer to provide it
 * than one thread to fill it.
 *
 * In: addresses, bytes, and at most how many threads. Nothing of Python runs meanwhile, so no interrupt leaves a thread behind
 * that still copies. Included behind platform.h.
 */
#include "platform.h"

enum { MOST_COPIERS = 8, LEAST_PART = 1 << 20 };

typedef struct {
  char *to;
  const char *from;
  size_t count;
} CopyPart;

static platform_thread_result_t PLATFORM_THREAD_CALL copy_part(void *argument) {
  const CopyPart *part = argument;
  memcpy(part->to, part->from, part->count);
  return 0;
}

static void copy_bytes(uint64_t to, uint64_t from, size_t count, size_t threads) {
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
  }
  while (begun + 1 < threads && platform_thread_begin(&started[begun], copy_part, &parts[begun])) begun++;
  for (size_t i = begun; i < threads; i++) copy_part(&parts[i]);
  for (size_t i = 0; i < begun; i++) platform_thread_end(started[i]);
}
