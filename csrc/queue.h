/* A device's queue in C code: submit.c submits to it, memory.c gives out memory that lies on its device. */
#ifndef ONNXRUNTIME_EP_WGPU_QUEUE_H
#define ONNXRUNTIME_EP_WGPU_QUEUE_H
#include "platform.h"
#include "tickets.h"

enum { LAST = 8 };

typedef struct {
  const uint64_t *functions; /* as in encode.c */
  uint64_t device, queue;
  Tickets *tickets;
  uint64_t nothing;          /* a buffer that nothing reads */
  int64_t lost;              /* whether the device is known to be lost */
  int64_t submits, dispatches; /* by `run` */
  int64_t runs, runs_ahead;    /* by `run`, and those that had been recorded ahead */
  int64_t looked;              /* which `runs` have been looked at by a thread that waited (device/queue.py) */
  int64_t uploads, downloads;  /* by `upload`, by `downloaded` */
  int64_t most_unflushed;      /* bytes, past which what has been written is submitted (device/queue.py) */
  int64_t unflushed;           /* bytes that have been written since the last submit */
  int64_t reused;              /* allocations that got a range of memory.c */
  int64_t free_ranges, free_bytes; /* that memory.c has for the next ones */
  int64_t last[LAST];          /* the addresses of the Works that the last ones were of */
  uint64_t staging, staging_bytes; /* a buffer that is read by `download`, 0 for none, by one thread at a time: */
  int64_t reading;             /* whether one does, or has failed to */
  size_t copiers;              /* threads that copy much */
  platform_lock_t lock;
} Queue;

/* Bytes of a buffer, from its beginning on, which are read to an address of the host. */
enum { MOST_PARTS = 16 };
typedef struct { uint64_t buffer, to, bytes; } Part;

/* Runs that are submitted together (chain.c), at most. */
enum { MOST_CHAINED = 8 };

#endif
