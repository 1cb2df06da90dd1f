/* Calls from C into Python that always return an answer, despite exceptions.
 *
 * In the main thread, the exception of a signal, KeyboardInterrupt, can be raised after any instruction of Python code. It may
 * come before the first line of a callback, after its last, and again in the code that handles the first one. The value that
 * Python then returns looks like an answer.
 *
 * Therefore Python returns nothing. It answers by a call to C, which C code makes together with the end of the work
 * (plugin/callbacks.py). So C code detects a callback without an answer, and calls it again. During that call SIGINT has a
 * handler that only records the signal, so our code is not interrupted. A recorded interrupt is raised when the outermost
 * callback of the thread has returned and Python continues.
 *
 *     WgpuCall call;
 *     if (!wgpu_enter(&call)) return 0;
 *     do py_name(call.again, ...); while (wgpu_unanswered(&call));
 *     wgpu_leave(&call);
 *
 * Included into cffi modules, which include Python.h before. */
#include <signal.h>

/* The most calls of a callback. Python may have no memory or stack left. */
enum { WGPU_TIMES = 8 };

/* One call into Python. `again`: an earlier call did not answer. `error`: the exception of that call. */
typedef struct WgpuCall {
  struct WgpuCall *outer;
  int answered, again;
  int64_t answer;
  PyObject *error, *handler;
} WgpuCall;

static PLATFORM_THREAD_LOCAL WgpuCall *wgpu_call; /* the innermost of this thread */
static PLATFORM_THREAD_LOCAL int wgpu_interrupted;

static void wgpu_interrupt_later(void) { wgpu_interrupted = 1; }

static void wgpu_answer(int64_t answer) {
  wgpu_call->answer = answer;
  wgpu_call->answered = 1;
}

PLATFORM_MAYBE_UNUSED static void wgpu_answer_pointer(const void *answer) { wgpu_answer((int64_t)(intptr_t)answer); }

/* cffi calls this with an exception that left Python: (type, exception, traceback). An interrupt after the answer is recorded.
   Any other exception after it is printed, because nothing else would show it. */
static PyObject *wgpu_left(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *error = PyTuple_GetItem(arguments, 1);
  WgpuCall *call = wgpu_call;
  if (error == NULL) return NULL;
  Py_INCREF(error);
  if (!call->answered) {
    Py_XDECREF(call->error);
    call->error = error;
  } else if (PyErr_GivenExceptionMatches(error, PyExc_KeyboardInterrupt)) {
    wgpu_interrupted = 1;
    Py_DECREF(error);
  } else {
    PyObject *type = PyTuple_GetItem(arguments, 0), *trace = PyTuple_GetItem(arguments, 2);
    Py_XINCREF(type);
    Py_XINCREF(trace);
    PyErr_Restore(type, error, trace);
    PyErr_WriteUnraisable(NULL);
  }
  Py_RETURN_NONE;
}

/* Returns the exception of the earlier call. */
static PyObject *wgpu_error(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  PyObject *error = wgpu_call != NULL && wgpu_call->error != NULL ? wgpu_call->error : Py_None;
  Py_INCREF(error);
  return error;
}

static PyObject *wgpu_note(PyObject *self, PyObject *arguments) {
  (void)self, (void)arguments;
  wgpu_interrupted = 1;
  Py_RETURN_NONE;
}

static PyMethodDef wgpu_functions[] = {
    {"left", wgpu_left, METH_VARARGS, "left(type, exception, traceback): cffi's `onerror` of every callback."},
    {"error", wgpu_error, METH_NOARGS, "error(): the exception that left the callback when it was asked before, or None."},
    {"note", wgpu_note, METH_VARARGS, "note(signal, frame): the handler of SIGINT while a callback is asked again."},
    {NULL, NULL, 0, NULL}};

/* Adds `left` and `error` to the module of this name, beside `ffi` and `lib`. */
static int wgpu_add_functions(const char *name) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *module = PyImport_AddModule(name); /* borrowed */
  int failed = module == NULL;
  for (PyMethodDef *it = wgpu_functions; !failed && it->ml_name != NULL; it++) {
    PyObject *function = PyCFunction_NewEx(it, NULL, NULL);
    failed = function == NULL || PyObject_SetAttrString(module, it->ml_name, function);
    Py_XDECREF(function);
  }
  if (failed) PyErr_Clear();
  PyGILState_Release(state);
  return !failed;
}

/* Calls `_signal.name(SIGINT, handler)`, or without a handler. Returns NULL outside of the main thread. A pending interrupt is
   raised first, in this call, and recorded. */
static PyObject *wgpu_signal(const char *name, PyObject *handler) {
  PyObject *module = PyImport_ImportModule("_signal"), *answer = NULL;
  for (int interrupted = 1; module != NULL && interrupted;) {
    answer = handler == NULL ? PyObject_CallMethod(module, name, "i", SIGINT)
                             : PyObject_CallMethod(module, name, "iO", SIGINT, handler);
    interrupted = answer == NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    if (interrupted) wgpu_interrupted = 1;
    if (answer == NULL) PyErr_Clear();
  }
  if (module == NULL) PyErr_Clear();
  Py_XDECREF(module);
  return answer;
}

/* Records interrupts from now on, if SIGINT has a Python handler and this thread is the one that calls it. */
static void wgpu_defer(WgpuCall *call) {
  static PyObject *note;
  if (note == NULL) note = PyCFunction_NewEx(&wgpu_functions[2], NULL, NULL);
  PyObject *handler = note == NULL || call->handler != NULL ? NULL : wgpu_signal("getsignal", NULL);
  if (handler == NULL) {
    PyErr_Clear();
  } else if (handler != note && PyCallable_Check(handler)) {
    PyObject *before = wgpu_signal("signal", note);
    if (before != NULL) {
      call->handler = handler;
      handler = before;
    }
  }
  Py_XDECREF(handler);
}

/* Begins a call. Returns 0 if Python cannot be called because the process ends. */
static int wgpu_enter(WgpuCall *call) {
  if (!Py_IsInitialized()) return 0;
  memset(call, 0, sizeof *call);
  call->outer = wgpu_call;
  wgpu_call = call;
  return 1;
}

/* Returns whether Python must be called again. In that case nothing interrupts it. */
static int wgpu_unanswered(WgpuCall *call) {
  if (call->answered || ++call->again >= WGPU_TIMES) return 0;
  PyGILState_STATE state = PyGILState_Ensure();
  wgpu_defer(call);
  PyGILState_Release(state);
  return 1;
}

static void wgpu_leave(WgpuCall *call) {
  if (call->again) {
    PyGILState_STATE state = PyGILState_Ensure();
    if (call->handler != NULL) Py_XDECREF(wgpu_signal("signal", call->handler));
    Py_XDECREF(call->handler);
    Py_XDECREF(call->error);
    PyGILState_Release(state);
  }
  wgpu_call = call->outer;
  if (wgpu_call != NULL || !wgpu_interrupted) return;
  wgpu_interrupted = 0;
  PyErr_SetInterrupt();
}
