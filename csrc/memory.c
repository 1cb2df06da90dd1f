/* Device memory that ONNX Runtime repeatedly allocates, fills and frees, without Python.
 *
 * In: ranges that plugin/memory/pool.py lends or gives, and ONNX Runtime's calls of an allocator and of the data transfer. Out:
 * a range for an allocation of the same size class, bytes that are written to its buffer or read from it. Otherwise the Python
 * function is called, which does everything else and reports every error.
 *
 * Each range is in one state. It changes in one step under `lock`, and nothing is called while the lock is held:
 *
 *     PYTHONS  ONNX Runtime owns it. Python fills it and frees it.
 *     USED     ONNX Runtime owns it. C code may fill it, and frees it, which makes it FREE.
 *     FREE     It has no owner and waits in its buffer. C code allocates it, which makes it USED.
 *     GONE     It has no owner and is not reused. Code that finds it drops it.
 *
 * Python lends (PYTHONS to USED), gives (PYTHONS to FREE or GONE), and takes back (USED to PYTHONS, FREE to GONE). So a second
 * call, as after an interrupt or from another thread, finds that the work is done and changes nothing.
 *
 * Invariants: a range is in the pool while it is USED or FREE, and Python keeps it as long. ONNX Runtime owns a USED range and
 * neither frees nor moves it during a copy, so its buffer stays. The marks of a range (runs.c) live as long as the process. As
 * in Python, they change before and after a write.
 */
#include "queue.h"
#include "without_python.h"

enum { POOLED = 64, GRAIN = 256, CLASSES = 8 };
enum { PYTHONS = 0, USED = 1, FREE = 2, GONE = 4 };
#define NEVER UINT64_MAX

typedef struct {
  int64_t state;
  uint64_t start, capacity; /* of the range */
  const void *owner;        /* its allocator */
  int64_t size, number;     /* of its current or last allocation; size 0 if it is GONE */
  uint64_t *marks;          /* see runs.c */
  uint64_t buffer, queue;   /* the buffer, which begins with the range; the Queue of its device */
  int64_t copied;           /* whether Python keeps host copies of its contents */
  int64_t barred;           /* whether it must stay with Python until it is freed, and becomes GONE then */
  uint64_t filled;          /* the mark of the value when this allocation was last written here */
  int64_t last;             /* orders the ranges by when they were freed */
} Range;

/* The state of the process. Bytes in use are `begun`, which Python counts, plus `changed`, which this file counts. */
typedef struct {
  int64_t made, begun, changed, at_most; /* allocations; bytes */
  int64_t reused, uploads;               /* allocations and uploads without Python */
  int64_t gone;                          /* ranges that have become GONE */
  int64_t ends;                          /* how often an allocator or the sessions of a device have ended */
  uint64_t start, end;                   /* addresses of devices */
  Range *pool[POOLED];
} Ranges;

static Ranges ranges;
static int64_t frees;
static platform_lock_t lock = PLATFORM_LOCK_INIT;

static int64_t next_number(void) { return platform_add(&ranges.made, 1); }

static void count(int64_t more) {
  int64_t now = platform_add(&ranges.changed, more) + platform_read(&ranges.begun);
  if (more > 0 && now > platform_read(&ranges.at_most)) platform_write(&ranges.at_most, now);
}

static Queue *queue_of(const Range *range) { return (Queue *)(uintptr_t)range->queue; }

static int is_lost(const Range *range) { return platform_read(&queue_of(range)->lost) != 0; }

/* Changes the state. Call under the lock. */
static void become(Range *range, int64_t state) {
  int more = (state == FREE) - (range->state == FREE);
  if (more) {
    platform_add(&queue_of(range)->free_ranges, more);
    platform_add(&queue_of(range)->free_bytes, more * (int64_t)range->capacity);
  }
  if (state == FREE) range->last = ++frees;
  if (state == GONE) {
    range->size = 0;
    platform_add(&ranges.gone, 1);
  }
  range->state = state;
}

/* Returns the index of a range in the pool, or of a free entry for NULL; -1 if there is none. Call under the lock. */
static int place_of(const Range *range) {
  for (int k = 0; k < POOLED; k++)
    if (ranges.pool[k] == range) return k;
  return -1;
}

/* Adds a range to the pool if it is allowed and there is a free entry. `ends`: the value of `ranges.ends` when the range was
 * allowed, or -1. Call under the lock. */
static int enter(Range *range, int64_t state, int64_t ends) {
  int place = ends == ranges.ends && !range->barred ? place_of(NULL) : -1;
  if (place < 0) return 0;
  ranges.pool[place] = range;
  range->filled = NEVER;
  become(range, state);
  return 1;
}

/* ---- for Python */

/* Leaves a range to C code, which fills and frees it, if possible. Returns its state. */
static int64_t lend(Range *range, int64_t ends) {
  platform_take(&lock);
  if (range->state == PYTHONS) enter(range, USED, ends);
  int64_t now = range->state;
  platform_give(&lock);
  return now;
}

/* Keeps a range that was Python's and that ONNX Runtime has freed, if possible. Returns its state. */
static int64_t give_free(Range *range, int64_t ends) {
  int64_t bytes = 0;
  platform_take(&lock);
  if (range->state == PYTHONS) {
    bytes = range->size;
    if (!enter(range, FREE, ends)) become(range, GONE);
  }
  int64_t now = range->state;
  platform_give(&lock);
  count(-bytes);
  return now;
}

/* Takes a range from C code if it is in one of these states. Returns its state. */
static int64_t take_back(Range *range, int64_t states) {
  platform_take(&lock);
  if (range->state & states & (USED | FREE)) {
    ranges.pool[place_of(range)] = NULL;
    become(range, range->state == FREE ? GONE : PYTHONS);
  }
  int64_t now = range->state;
  platform_give(&lock);
  return now;
}

/* Call this when an allocator ends, or the sessions of a device. Invalidates earlier decisions about the pool. */
static void end_some(void) {
  platform_take(&lock);
  ranges.ends++;
  platform_give(&lock);
}

/* Returns the start of the range that must be released before one with this capacity is added: the FREE one that was unused
 * longest. Returns 0 if there is room, in number and in bytes, or if none is FREE. */
static uint64_t surplus(uint64_t capacity, uint64_t most) {
  const Range *oldest = NULL;
  uint64_t held = capacity, number = 0;
  platform_take(&lock);
  for (int k = 0; k < POOLED; k++) {
    const Range *it = ranges.pool[k];
    if (it == NULL) continue;
    number++;
    held += it->capacity;
    if (it->state == FREE && (oldest == NULL || it->last < oldest->last)) oldest = it;
  }
  uint64_t start = oldest != NULL && (number == POOLED || held > most) ? oldest->start : 0;
  platform_give(&lock);
  return start;
}

/* Returns the start of a FREE range on a lost device; 0 if there is none. */
static uint64_t lost_range(void) {
  uint64_t start = 0;
  platform_take(&lock);
  for (int k = 0; k < POOLED && !start; k++) {
    const Range *it = ranges.pool[k];
    if (it != NULL && it->state == FREE && is_lost(it)) start = it->start;
  }
  platform_give(&lock);
  return start;
}

/* Returns the number of ranges. */
static int64_t pooled(void) {
  int64_t number = 0;
  platform_take(&lock);
  for (int k = 0; k < POOLED; k++) number += ranges.pool[k] != NULL;
  platform_give(&lock);
  return number;
}

/* ---- the allocator */

/* See device/sizes.py. */
static uint64_t size_class(uint64_t bytes) {
  unsigned bits = 0;
  for (uint64_t most = (bytes ? bytes : 1) - 1; most; most >>= 1) bits++;
  uint64_t step = ((uint64_t)1 << bits) / (2 * CLASSES);
  if (step < GRAIN) step = GRAIN;
  return bytes ? (bytes + step - 1) / step * step : step;
}

static int64_t distance(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

/* Threads with listeners use C code too, because no span depends on the code that allocates and frees. Otherwise a range could
 * be owned by both and would never be free. */
static void *alloc(OrtAllocator *self, size_t bytes) {
  uint64_t start = 0;
  if (in_use()) {
    uint64_t capacity = size_class(bytes);
    Range *found = NULL;
    platform_take(&lock);
    for (int k = 0; k < POOLED; k++) {
      Range *it = ranges.pool[k];
      if (it == NULL || it->state != FREE || it->owner != self || it->capacity != capacity || is_lost(it)) continue;
      /* The one nearest in size, probably the same tensor: similar runs find their tensors at the same addresses. */
      int64_t other = distance(it->size, (int64_t)bytes);
      if (found == NULL || other < distance(found->size, (int64_t)bytes)) found = it;
    }
    if (found != NULL) {
      become(found, USED);
      found->size = (int64_t)bytes;
      found->filled = NEVER;
      found->number = next_number();
      start = found->start;
      platform_add(&queue_of(found)->reused, 1);
    }
    platform_give(&lock);
  }
  if (!start) return c_OrtAllocator_Alloc(self, bytes);
  count((int64_t)bytes);
  platform_add(&ranges.reused, 1);
  return (void *)(uintptr_t)start;
}

/* Returns the USED range that begins at an address, or NULL. Call under the lock. */
static Range *used_at(const void *address) {
  for (int k = 0; k < POOLED; k++) {
    Range *it = ranges.pool[k];
    if (it != NULL && it->state == USED && it->start == (uint64_t)(uintptr_t)address) return it;
  }
  return NULL;
}

static void free_range(OrtAllocator *self, void *address) {
  int64_t bytes = -1;
  if (in_use()) {
    platform_take(&lock);
    Range *range = used_at(address);
    if (range != NULL) {
      become(range, FREE);
      bytes = range->size;
    }
    platform_give(&lock);
  }
  if (bytes < 0) c_OrtAllocator_Free(self, address);
  else count(-bytes);
}

/* ---- the data transfer */

static int64_t adapters; /* the number of device memories; 0 until it is known */
/* From submit.c and readback.c. */
static int (*upload)(uint64_t queue, uint64_t buffer, uint64_t offset, const void *data, size_t bytes);
static void *(*download)(Queue *queue, const Part *parts, size_t count);
static int (*downloaded)(Queue *queue, void *answer, const Part *parts, size_t count);

enum { CPU = 0, GPU = 1, OURS = 2, OTHER = 3 };

static int kind_of(const OrtEpApi *ep, const OrtMemoryDevice *device) {
  int type = ep->MemoryDevice_GetDeviceType(device);
  if (type == CPU) return CPU;
  return type == GPU && ep->MemoryDevice_GetVendorId(device) == 0 && ep->MemoryDevice_GetMemoryType(device) == 0 &&
                 ep->MemoryDevice_GetDeviceId(device) < adapters
             ? OURS
             : OTHER;
}

static bool can_copy(const OrtDataTransferImpl *self, const OrtMemoryDevice *source, const OrtMemoryDevice *destination) {
  if (!adapters) return c_OrtDataTransferImpl_CanCopy(self, source, destination);
  const OrtEpApi *ep = ((const WgpuOrtDataTransferImpl *)self)->api->GetEpApi();
  int from = kind_of(ep, source), to = kind_of(ep, destination);
  return from != OTHER && to != OTHER && (from == OURS || to == OURS);
}

/* Copies the range of a tensor that begins at `data`. Returns whether there is one; otherwise Python must look it up. */
static int copy_of(const void *data, size_t bytes, Range *out) {
  platform_take(&lock);
  const Range *range = used_at(data);
  int found = range != NULL && bytes <= (size_t)range->size;
  if (found) *out = *range;
  platform_give(&lock);
  return found;
}

/* Marks a range as filled, unless it has another allocation now. */
static void set_filled(const Range *same, uint64_t mark) {
  platform_take(&lock);
  Range *range = used_at((const void *)(uintptr_t)same->start);
  if (range != NULL && range->number == same->number) range->filled = mark;
  platform_give(&lock);
}

static int on_device(const void *data) {
  return (uint64_t)(uintptr_t)data >= ranges.start && (uint64_t)(uintptr_t)data < ranges.end;
}

/* Writes a tensor of the host to one on the device. Returns whether it did, or with `only_look` whether it would. */
static int upload_one(const OrtApi *api, const OrtValue *source, OrtValue *destination, int only_look) {
  const void *from = NULL, *to = NULL;
  size_t bytes = 0, room = 0;
  if (!good(api, api->GetTensorData(source, &from)) || !good(api, api->GetTensorData(destination, &to)) ||
      !good(api, api->GetTensorSizeInBytes(source, &bytes)) || !good(api, api->GetTensorSizeInBytes(destination, &room)))
    return 0;
  if (bytes == 0 || bytes > room || bytes % 4 || from == NULL || on_device(from)) return 0;
  Range range;
  if (!copy_of(to, bytes, &range) || range.copied) return 0; /* a host copy needs the new content too */
  if (only_look) return 1;
  int64_t *value = (int64_t *)&range.marks[1];
  platform_add(value, 1);
  PyThreadState *python = without_its_lock();
  int done = upload(range.queue, range.buffer, 0, from, bytes);
  python_again(python);
  set_filled(&range, (uint64_t)platform_add(value, 1));
  if (done) platform_add(&ranges.uploads, 1);
  return done;
}

/* Reads tensors of one device. Returns whether it did. */
static int download_all(const OrtApi *api, const OrtValue **sources, OrtValue **destinations, size_t count) {
  Part parts[MOST_PARTS];
  Queue *queue = NULL;
  if (count > MOST_PARTS) return 0;
  for (size_t i = 0; i < count; i++) {
    const void *from = NULL, *to = NULL;
    size_t bytes = 0, room = 0;
    Range range;
    if (!good(api, api->GetTensorData(sources[i], &from)) || !good(api, api->GetTensorData(destinations[i], &to)) ||
        !good(api, api->GetTensorSizeInBytes(sources[i], &bytes)) || !good(api, api->GetTensorSizeInBytes(destinations[i], &room)))
      return 0;
    if (bytes == 0 || bytes > room || to == NULL || on_device(to) || !copy_of(from, bytes, &range)) return 0;
    if (queue != NULL && queue_of(&range) != queue) return 0;
    queue = queue_of(&range);
    parts[i] = (Part){range.buffer, (uint64_t)(uintptr_t)to, bytes};
  }
  PyThreadState *python = without_its_lock();
  void *answer = queue != NULL ? download(queue, parts, count) : NULL;
  if (answer != NULL && platform_read(&queue->runs) != platform_read(&queue->runs_seen))
    c_RunDeferred(queue);
  int done = answer != NULL && downloaded(queue, answer, parts, count);
  python_again(python);
  return done;
}

static OrtStatus *copy_tensors(OrtDataTransferImpl *self, const OrtValue **sources, OrtValue **destinations,
                               OrtSyncStream **streams, size_t count_of_them) {
  const OrtApi *api = ((const WgpuOrtDataTransferImpl *)self)->api;
  int may = upload != NULL && without_python(), done = may;
  for (size_t i = 0; done && i < count_of_them; i++) done = upload_one(api, sources[i], destinations[i], 1);
  for (size_t i = 0; done && i < count_of_them; i++) done = upload_one(api, sources[i], destinations[i], 0);
  return done || (may && download_all(api, sources, destinations, count_of_them)) ? NULL : c_OrtDataTransferImpl_CopyTensors(self, sources, destinations, streams, count_of_them);
}
