/* Submission and waiting, which differ between WebGPU libraries. tickets.c implements both ways; submit.c and readback.c use
 * that of a queue. */
#ifndef ONNXRUNTIME_EP_WGPU_TICKETS_H
#define ONNXRUNTIME_EP_WGPU_TICKETS_H
#include <stddef.h>
#include <stdint.h>

/* A ticket covers everything submitted so far. Only these functions interpret its value. */
typedef struct Tickets Tickets;
struct Tickets {
  /* Submits `count` command buffers, or the writes so far if there are none. Returns the ticket. */
  uint64_t (*submit)(Tickets *its, size_t count, void *const *commands);
  /* Waits for the work of a ticket. Callbacks for it have run then, or are running on another thread. */
  void (*wait)(Tickets *its, uint64_t ticket);
  /* Runs pending callbacks, without waiting. */
  void (*look)(Tickets *its);
  uint64_t device, queue, instance;
  uint64_t functions[4]; /* of the library, in the order of tickets.c */
  int64_t submits;
  int by_future; /* whether the ticket of a map is its future; otherwise it is that of the submission before it */
};

#endif
