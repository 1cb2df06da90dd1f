/* Whether C code or Python handles calls of ONNX Runtime. Python decides (plugin/without_python.py). */
#ifndef ONNXRUNTIME_EP_WGPU_WITHOUT_PYTHON_H
#define ONNXRUNTIME_EP_WGPU_WITHOUT_PYTHON_H
#include "platform.h"

/* Whether this thread has listeners. Python then does the work that leaves a span. */
static PLATFORM_THREAD_LOCAL int listening;
static void listen(int listens) { listening = listens; }

/* Whether this process must not use a GPU; see process.py. */
static int64_t forked;

/* Whether there is a GPU to use, and Python for what C code does not do. */
static int in_use(void) { return !platform_read(&forked) && Py_IsInitialized(); }

static int without_python(void) { return !listening && in_use(); }

/* Releases the interpreter's lock if this thread holds it, as when a tensor is bound. The reason is that wgpu-native reports an
 * error to Python while it holds a lock of its own. A thread that waits for that lock must not hold Python's. Returns the argument
 * for `python_again`. */
static PyThreadState *without_its_lock(void) {
  typedef PyThreadState *(*current_state)(void);
  static current_state current; /* outside of the limited API, under one of two names */
  if (current == NULL) current = (current_state)(uintptr_t)platform_symbol("PyThreadState_GetUnchecked");
  if (current == NULL) current = (current_state)(uintptr_t)platform_symbol("_PyThreadState_UncheckedGet");
  PyThreadState *here = PyGILState_GetThisThreadState();
  return here != NULL && current != NULL && current() == here ? PyEval_SaveThread() : NULL;
}

static void python_again(PyThreadState *state) {
  if (state != NULL) PyEval_RestoreThread(state);
}

static int good(const OrtApi *api, OrtStatus *status) {
  if (status == NULL) return 1;
  api->ReleaseStatus(status);
  return 0;
}

/* ONNX Runtime's table is the beginning of our object, and its OrtApi follows it. csrc/build_ort.py relies on that. */
#define API_BEHIND_TABLE(type) \
  PLATFORM_STATIC_ASSERT(offsetof(type, table) == 0 && offsetof(type, api) == sizeof ((type *)0)->table, #type)

#endif
