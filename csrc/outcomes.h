/* The outcome of a run that C code repeats. submit.c returns it, runs.c acts on it. */
#ifndef ONNXRUNTIME_EP_WGPU_OUTCOMES_H
#define ONNXRUNTIME_EP_WGPU_OUTCOMES_H

enum {
  REFUSED = 0, /* nothing has run: Python does all of it, or finds out why it cannot */
  DONE = 1,
  BEGUN = 2, /* a part has run and a later one was refused: an error, because nothing may run twice */
};

#endif
