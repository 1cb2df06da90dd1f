/* The two ways in which libraries submit and wait (tickets.h).
 *
 * In: addresses of a library's functions (device/webgpu/). Invariant: there is no Python code here, so each call runs without the
 * interpreter's lock. A callback of a library that needs Python takes the lock itself.
 */
#include "platform.h"
#include "tickets.h"

#define POINTER(type, word) ((type)(uintptr_t)(word))

typedef void *handle;
typedef struct { uint64_t id; } Future;
typedef struct { const char *data; size_t length; } Text;

/* Submission indices: { submit_for_index, poll }. A ticket is the index of a submission. */
enum { SUBMIT_FOR_INDEX, POLL };
typedef uint64_t (*submit_for_index)(void *queue, size_t count, void *const *commands);
typedef uint32_t (*poll_device)(void *device, uint32_t wait, const uint64_t *index);

static uint64_t indexed_submit(Tickets *its, size_t count, void *const *commands) {
  return POINTER(submit_for_index, its->functions[SUBMIT_FOR_INDEX])(POINTER(handle, its->queue), count, commands);
}

static void indexed_wait(Tickets *its, uint64_t ticket) {
  POINTER(poll_device, its->functions[POLL])(POINTER(handle, its->device), 1, &ticket);
}

static void indexed_look(Tickets *its) { POINTER(poll_device, its->functions[POLL])(POINTER(handle, its->device), 0, NULL); }

/* Futures: { submit, on_done, wait_any, process }. A ticket is the id of a future, or 0 for everything submitted so far. The
 * future for 0 is made when it is waited for, because a future without a wait is never released. */
enum { SUBMIT, ON_DONE, WAIT_FOR_ANY, PROCESS };
enum { WAIT_ANY_ONLY = 1 };     /* WGPUCallbackMode */
enum { SUBMITS_PER_LOOK = 64 }; /* processing events frees the memory of completed work */
typedef struct { Future future; uint32_t completed; } FutureWait;
typedef struct {
  const void *next;
  int mode;
  void (*callback)(int status, Text message, void *userdata1, void *userdata2);
  void *userdata1, *userdata2;
} DoneInfo;
typedef void (*submit_commands)(void *queue, size_t count, void *const *commands);
typedef Future (*on_done)(void *queue, DoneInfo info);
typedef int (*wait_any)(void *instance, size_t count, FutureWait *futures, uint64_t nanoseconds);
typedef void (*process_events)(void *instance);

static void done(int status, Text message, void *userdata1, void *userdata2) {
  (void)status, (void)message, (void)userdata1, (void)userdata2;
}

static void futures_look(Tickets *its) { POINTER(process_events, its->functions[PROCESS])(POINTER(handle, its->instance)); }

static uint64_t futures_submit(Tickets *its, size_t count, void *const *commands) {
  POINTER(submit_commands, its->functions[SUBMIT])(POINTER(handle, its->queue), count, commands);
  if (platform_add(&its->submits, 1) % SUBMITS_PER_LOOK == 0) futures_look(its);
  return 0;
}

static void futures_wait(Tickets *its, uint64_t ticket) {
  DoneInfo info = {NULL, WAIT_ANY_ONLY, done, NULL, NULL};
  FutureWait one = {{ticket}, 0};
  if (!ticket) one.future = POINTER(on_done, its->functions[ON_DONE])(POINTER(handle, its->queue), info);
  POINTER(wait_any, its->functions[WAIT_FOR_ANY])(POINTER(handle, its->instance), 1, &one, UINT64_MAX);
  futures_look(its);
}
