/* Device memory that ONNX Runtime allocates, fills and frees again and again, without Python.
 *
 * In: ranges that plugin/memory/kept.py has left in their buffers when they were freed (`keep`), and ONNX Runtime's calls of an
 * allocator and of the data transfer. Out: the same range again for an allocation of the same size class, bytes of the host written
 * to its buffer, or the Python function is called, which does everything else and reports every error.
 * Invariants: a range is in at most one place of `kept`; `lock` guards its state and is held while nothing else is called. A range
 * that is USED belongs to ONNX Runtime, which neither frees nor moves what it copies to, so its buffer stays. The marks of a range
 * (marks.h) change when it is written here as they do in Python: before and after.
 */
#include "platform.h"

enum { KEPT = 64, GRAIN = 256, CLASSES = 8 };
enum { NOTHING, FREE, USED };
#define NEVER UINT64_MAX

typedef struct {
  int64_t state, place;     /* `place` is the number of the range in `kept`; -1 in one that is not there */
  uint64_t start, capacity; /* of the range */
  const void *owner;        /* the allocator that it is of */
  int64_t counted;          /* bytes that Python counts for it, whoever has it */
  int64_t size, number;     /* of the allocation that has it, or had it last */
  uint64_t *marks;          /* as marks.h has them */
  uint64_t buffer, queue;   /* where the range lies, from its first byte on; a Queue of submit.c */
  int64_t copied;           /* whether Python keeps host copies of what is put there */
  uint64_t filled;          /* the mark of the value when this allocation was last written here */
  int64_t last;             /* orders the ranges by when they were freed */
} Kept;

/* What the whole process has. Bytes are the sum of what Python and what C code has counted. */
typedef struct {
  int64_t made, by_python, by_c, at_most; /* allocations; bytes */
  int64_t again, uploads;                 /* allocations and uploads without Python */
  uint64_t start, end;                    /* addresses of devices */
  Kept kept[KEPT];
} Ranges;

static Ranges ranges;
static int64_t frees;
#ifdef _WIN32
static platform_lock_t lock = SRWLOCK_INIT;
#else
static platform_lock_t lock = PTHREAD_MUTEX_INITIALIZER;
#endif

/* Whether this thread's work is recorded: then Python does it. */
static PLATFORM_THREAD_LOCAL int listening;
static void listen(int listens) { listening = listens; }

/* Whether this process may use no GPU; see process.py. */
static int64_t forked;

static int without_python(void) { return !listening && !platform_read(&forked) && Py_IsInitialized(); }

static int64_t next_number(void) { return platform_add(&ranges.made, 1); }

static void count(int64_t more) {
  int64_t now = platform_add(&ranges.by_c, more) + platform_read(&ranges.by_python);
  if (now > platform_read(&ranges.at_most)) platform_write(&ranges.at_most, now);
}

/* ---- for Python */

/* A range is left to C code: one that is USED, to fill and to free it, or one that is FREE and stays in its buffer. `range` gets its
 * place in `kept`. Whether there is one. */
static int keep(Kept *range, int64_t state) {
  int kept = 0;
  platform_take(&lock);
  for (int k = 0; k < KEPT && range->place < 0; k++) {
    if (ranges.kept[k].state != NOTHING) continue;
    range->place = k;
    range->state = state;
    range->filled = NEVER;
    range->last = ++frees;
    ranges.kept[k] = *range;
    kept = 1;
  }
  platform_give(&lock);
  if (kept && state == FREE) count(-range->counted);
  return range->place >= 0;
}

/* The start of the range that has to go for one of so many bytes more: of those that are FREE the one that was used longest ago. 0 when
 * there is room, in number and in bytes, or none of them. */
static uint64_t surplus(uint64_t capacity, uint64_t most) {
  const Kept *oldest = NULL;
  uint64_t held = capacity, number = 0;
  platform_take(&lock);
  for (int k = 0; k < KEPT; k++) {
    const Kept *it = &ranges.kept[k];
    if (it->state == NOTHING) continue;
    number++;
    held += it->capacity;
    if (it->state == FREE && (oldest == NULL || it->last < oldest->last)) oldest = it;
  }
  uint64_t start = oldest != NULL && (number == KEPT || held > most) ? oldest->start : 0;
  platform_give(&lock);
  return start;
}

/* The range at a place, which is the one that starts here, is in this state no more but Python's. Whether it was. */
static int take_back(int64_t place, uint64_t start, int64_t state) {
  Kept *it = &ranges.kept[place];
  platform_take(&lock);
  int was = it->state == state && it->start == start;
  int64_t more = state == FREE ? it->counted : it->counted - it->size;
  if (was) it->state = NOTHING;
  platform_give(&lock);
  if (was) count(more);
  return was;
}

/* ---- the allocator */

typedef struct {
  OrtAllocator table; /* first: ONNX Runtime's pointer is the Allocator's */
  const OrtApi *api;
  void *(*alloc_in_python)(OrtAllocator *, size_t);
  void (*free_in_python)(OrtAllocator *, void *);
  int64_t again; /* allocations without Python */
} Allocator;

/* As device/sizes.py has it. */
static uint64_t size_class(uint64_t bytes) {
  unsigned bits = 0;
  for (uint64_t most = (bytes ? bytes : 1) - 1; most; most >>= 1) bits++;
  uint64_t step = ((uint64_t)1 << bits) / (2 * CLASSES);
  if (step < GRAIN) step = GRAIN;
  return bytes ? (bytes + step - 1) / step * step : step;
}

static int64_t distance(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

static void *alloc(OrtAllocator *self, size_t bytes) {
  uint64_t start = 0;
  if (without_python()) {
    uint64_t capacity = size_class(bytes);
    Kept *found = NULL;
    platform_take(&lock);
    for (int k = 0; k < KEPT; k++) {
      Kept *it = &ranges.kept[k];
      if (it->state != FREE || it->owner != self || it->capacity != capacity) continue;
      /* The one that was nearest in size, probably the same tensor: runs that are alike find theirs where they were. */
      int64_t other = distance(it->size, (int64_t)bytes);
      if (found == NULL || other < distance(found->size, (int64_t)bytes)) found = it;
    }
    if (found != NULL) {
      found->state = USED;
      found->size = (int64_t)bytes;
      found->filled = NEVER;
      found->number = next_number();
      start = found->start;
    }
    platform_give(&lock);
  }
  if (!start) return ((Allocator *)self)->alloc_in_python(self, bytes);
  count((int64_t)bytes);
  platform_add(&ranges.again, 1);
  platform_add(&((Allocator *)self)->again, 1);
  return (void *)(uintptr_t)start;
}

static void free_range(OrtAllocator *self, void *address) {
  int64_t bytes = -1;
  if (without_python()) {
    platform_take(&lock);
    for (int k = 0; k < KEPT && bytes < 0; k++) {
      Kept *it = &ranges.kept[k];
      if (it->start != (uint64_t)(uintptr_t)address || it->state != USED || it->owner != self) continue;
      it->state = FREE;
      it->last = ++frees;
      bytes = it->size;
    }
    platform_give(&lock);
  }
  if (bytes < 0) ((Allocator *)self)->free_in_python(self, address);
  else count(-bytes);
}

/* ---- the data transfer */

typedef struct {
  OrtDataTransferImpl table; /* first */
  const OrtApi *api;
  const OrtEpApi *ep;
  bool (*can_copy_in_python)(const OrtDataTransferImpl *, const OrtMemoryDevice *, const OrtMemoryDevice *);
  OrtStatus *(*copy_in_python)(OrtDataTransferImpl *, const OrtValue **, OrtValue **, OrtSyncStream **, size_t);
  int (*upload)(uint64_t queue, uint64_t buffer, uint64_t offset, const void *data, size_t bytes);
  int64_t adapters; /* how many memories there are; 0 until that is known */
} Transfer;

enum { CPU = 0, GPU = 1, OURS = 2, OTHER = 3 };

static int kind_of(const Transfer *transfer, const OrtMemoryDevice *device) {
  const OrtEpApi *ep = transfer->ep;
  int type = ep->MemoryDevice_GetDeviceType(device);
  if (type == CPU) return CPU;
  return type == GPU && ep->MemoryDevice_GetVendorId(device) == 0 && ep->MemoryDevice_GetMemoryType(device) == 0 &&
                 ep->MemoryDevice_GetDeviceId(device) < transfer->adapters
             ? OURS
             : OTHER;
}

static bool can_copy(const OrtDataTransferImpl *self, const OrtMemoryDevice *source, const OrtMemoryDevice *destination) {
  const Transfer *transfer = (const Transfer *)self;
  if (!transfer->adapters) return transfer->can_copy_in_python(self, source, destination);
  int from = kind_of(transfer, source), to = kind_of(transfer, destination);
  return from != OTHER && to != OTHER && (from == OURS || to == OURS);
}

static int good(const OrtApi *api, OrtStatus *status) {
  if (status == NULL) return 1;
  api->ReleaseStatus(status);
  return 0;
}

/* The range that such a tensor fills from its beginning, and of which nobody wants a host copy; NULL when Python has to look. */
static Kept *filled_by(const void *data, size_t bytes) {
  Kept *found = NULL;
  platform_take(&lock);
  for (int k = 0; k < KEPT && found == NULL; k++) {
    Kept *it = &ranges.kept[k];
    if (it->start == (uint64_t)(uintptr_t)data && it->state == USED && !it->copied && bytes <= (size_t)it->size) found = it;
  }
  platform_give(&lock);
  return found;
}

static int on_device(const void *data) {
  return (uint64_t)(uintptr_t)data >= ranges.start && (uint64_t)(uintptr_t)data < ranges.end;
}

/* Writes a tensor of the host to one on the device. Whether it did; or whether it would, with `only_look`. */
static int upload_one(const Transfer *transfer, const OrtValue *source, OrtValue *destination, int only_look) {
  const OrtApi *api = transfer->api;
  const void *from = NULL, *to = NULL;
  size_t bytes = 0, room = 0;
  if (!good(api, api->GetTensorData(source, &from)) || !good(api, api->GetTensorData(destination, &to)) ||
      !good(api, api->GetTensorSizeInBytes(source, &bytes)) || !good(api, api->GetTensorSizeInBytes(destination, &room)))
    return 0;
  if (bytes == 0 || bytes > room || bytes % 4 || from == NULL || on_device(from)) return 0;
  Kept *range = filled_by(to, bytes);
  if (range == NULL) return 0;
  if (only_look) return 1;
  int64_t *value = (int64_t *)&range->marks[1];
  platform_add(value, 1);
  int done = transfer->upload(range->queue, range->buffer, 0, from, bytes);
  range->filled = (uint64_t)platform_add(value, 1);
  if (done) platform_add(&ranges.uploads, 1);
  return done;
}

static OrtStatus *copy_tensors(OrtDataTransferImpl *self, const OrtValue **sources, OrtValue **destinations,
                               OrtSyncStream **streams, size_t count_of_them) {
  const Transfer *transfer = (const Transfer *)self;
  int done = transfer->upload != NULL && without_python();
  for (size_t i = 0; done && i < count_of_them; i++) done = upload_one(transfer, sources[i], destinations[i], 1);
  for (size_t i = 0; done && i < count_of_them; i++) done = upload_one(transfer, sources[i], destinations[i], 0);
  return done ? NULL : transfer->copy_in_python(self, sources, destinations, streams, count_of_them);
}
