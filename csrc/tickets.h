/* How work is submitted to a queue and waited for, in which WebGPU libraries differ: tickets.c has the ways, submit.c and readback.c
 * use whichever a queue has. */
#ifndef ONNXRUNTIME_EP_WGPU_TICKETS_H
#define ONNXRUNTIME_EP_WGPU_TICKETS_H
#include <stddef.h>
#include <stdint.h>

/* A ticket is for what was submitted until then. Its number means something to these functions alone. */
typedef struct Tickets Tickets;
struct Tickets {
  /* Submits `count` command buffers, or the writes so far with none. The ticket. */
  uint64_t (*submit)(Tickets *its, size_t count, void *const *commands);
  /* Returns when what the ticket is for has run, and callbacks that waited for it have been called, or are by another thread. */
  void (*wait)(Tickets *its, uint64_t ticket);
  /* Calls callbacks that can be called, without waiting. */
  void (*look)(Tickets *its);
  uint64_t device, queue, instance;
  uint64_t functions[4]; /* of the library, in the order of tickets.c */
  int64_t submits;
  int by_future; /* whether the future of a map is its ticket; else that of the submission before it is */
};

#endif
