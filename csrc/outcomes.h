/* What came of a run that C code repeats: submit.c says it, runs.c does what follows. */
#ifndef ONNXRUNTIME_EP_WGPU_OUTCOMES_H
#define ONNXRUNTIME_EP_WGPU_OUTCOMES_H

enum {
  REFUSED = 0, /* nothing has run: Python does all of it, or finds out why it cannot */
  DONE = 1,
  BEGUN = 2, /* a part has run and a later one was refused: an error, as nothing may run twice */
};

#endif
