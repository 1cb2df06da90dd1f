/* The queue of a device in C code. submit.c submits to it, memory.c allocates memory of its device. */
#ifndef ONNXRUNTIME_EP_WGPU_QUEUE_H
#define ONNXRUNTIME_EP_WGPU_QUEUE_H
#include "platform.h"
#include "tickets.h"

enum { LAST = 8 };

typedef struct {
  const uint64_t *functions; /* see encode.c */
  uint64_t device, queue;
  Tickets *tickets;
  uint64_t nothing;          /* a buffer that is never read */
  int64_t lost;              /* whether the device is known to be lost */
  int64_t submits, dispatches; /* by `run` */
  int64_t runs, runs_ahead;    /* by `run`, and those that were recorded in advance */
  int64_t runs_seen;              /* the value of `runs` at the last call of `run_deferred` (device/queue.py) */
  int64_t uploads, downloads;  /* by `upload`, by `downloaded` */
  int64_t most_unflushed;      /* bytes of writes after which they are submitted (device/queue.py) */
  int64_t unflushed;           /* bytes that were written since the last submit */
  int64_t reused;              /* allocations that reused a range of memory.c */
  int64_t free_ranges, free_bytes; /* in the pool of memory.c */
  int64_t last[LAST];          /* the addresses of the Works of the last runs */
  uint64_t staging, staging_bytes; /* the staging buffer of `download`, 0 for none, for one thread at a time */
  int64_t reading;             /* whether a thread uses it, or has failed to read it */
  size_t copiers;              /* threads for a large copy */
  platform_lock_t lock;
} Queue;

/* Bytes of a buffer, from its beginning on, that are read to an address of the host. */
enum { MOST_PARTS = 16 };
typedef struct { uint64_t buffer, to, bytes; } Part;

/* The most runs in one submission of chain.c. */
enum { MOST_CHAINED = 8 };

#endif
