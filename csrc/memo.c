/* Runs of a compiled node that are the same as before, without Python.
 *
 * In: a Node, which ONNX Runtime calls as its OrtNodeComputeInfo, with what plugin/memo.py has noted about earlier runs. Out: the
 * same work is submitted again, or the Python function is called, which does everything else and reports every error: also of a work
 * that has been submitted in part, for which it gets the memo in place of the node's state.
 * Invariants: a memo is used only while all that it was made of stands: the same addresses, types and shapes, and marks of the
 * memory behind them that have not changed since. `users` is raised before `live` is looked at, and Python ends a memo by clearing
 * `live` before it looks at `users`, so one of both sees the other. An error here is no error, but of work that has begun: the Python
 * function does it again.
 */
#include "without_python.h"
#include "marks.h"
#include "outcomes.h"

enum { LEFT_OUT = 0 };

/* An input or output of a run. */
typedef struct {
  const void *data;      /* its address; NULL when it is empty or left out, and any address will do */
  const uint64_t *marks; /* of the memory there: what it is, and what it holds; NULL when any will do */
  uint64_t place, value; /* what the marks have to be */
  int valued;            /* whether it matters what the memory holds */
  int type;              /* ONNX element type, LEFT_OUT for an input that is not there */
  size_t rank, first;    /* of its dims */
} Tensor;

typedef struct {
  int64_t live, users, hits, last;
  int64_t graph;         /* what a run has to have been begun as, where the session captures */
  const Tensor *tensors; /* inputs of the node, then outputs */
  const int64_t *dims;   /* of all tensors */
  int (*run)(void *work);
  void *work;
} Memo;

typedef struct {
  OrtNodeComputeInfo table; /* first: ONNX Runtime's pointer is the Node's */
  const OrtApi *api;
  OrtStatus *(*python)(OrtNodeComputeInfo *, void *, OrtKernelContext *);
  size_t inputs, outputs;
  int captured; /* whether the session captures its runs */
  int64_t every, runs; /* of so many runs Python does one, where interrupts are handled; 0: none */
  int64_t hits; /* of all memos; orders them by their last use */
  Memo memos[MEMOS]; /* of the last runs; build_memo.py says how many, at most 32 */
} Node;
API_BEHIND_TABLE(Node);

/* What the run of this thread has been begun as, in a session that captures: the number of a captured graph; 0 for a new one. */
static PLATFORM_THREAD_LOCAL int64_t begun;
static void begin_run(int64_t graph) { begun = graph; }

static void memo_begin(Memo *memo) { platform_write(&memo->live, 1); }

/* Ends a memo; whether no thread is using it, so that what it points to may go. To be asked again otherwise. */
static int memo_end(Memo *memo) {
  platform_write(&memo->live, 0);
  return platform_read(&memo->users) == 0;
}

static int stands(const Tensor *it) {
  return it->marks == NULL || marks_stand(it->marks, it->place, it->value, it->valued);
}

static int is_input(const OrtApi *api, const OrtValue *value, const Memo *memo, const Tensor *it) {
  if (value == NULL) return it->type == LEFT_OUT;
  const void *data = NULL;
  const int64_t *dims = NULL;
  size_t rank = 0;
  int type = 0;
  return it->type != LEFT_OUT && good(api, api->GetTensorData(value, &data)) && (it->data == NULL || data == it->data) &&
         good(api, api->GetTensorElementTypeAndShapeDataReference(value, &type, &dims, &rank)) && type == it->type &&
         rank == it->rank && (rank == 0 || memcmp(dims, memo->dims + it->first, rank * sizeof *dims) == 0) && stands(it);
}

static int is_output(const void *data, const Tensor *it) { return (it->data == NULL || data == it->data) && stands(it); }

static void leave(Node *node, unsigned *candidates, int number) {
  platform_add(&node->memos[number].users, -1);
  *candidates &= ~(1u << number);
}

static int run_again(const Memo *memo) {
  PyThreadState *python = without_its_lock();
  int outcome = memo->run(memo->work);
  python_again(python);
  return outcome;
}

/* What came of a run that a memo has; REFUSED when none has it. With BEGUN `half` becomes the memo, which is left in use. */
static int same_run(Node *node, OrtKernelContext *context, Memo **half) {
  const OrtApi *api = node->api;
  unsigned candidates = 0;
  for (int k = 0; k < MEMOS; k++) {
    Memo *memo = &node->memos[k];
    if (!platform_read(&memo->live)) continue;
    candidates |= 1u << k;
    platform_add(&memo->users, 1);
    if (!platform_read(&memo->live) || (node->captured && memo->graph != begun)) leave(node, &candidates, k);
  }
  for (size_t i = 0; candidates && i < node->inputs; i++) {
    const OrtValue *value = NULL;
    int known = good(api, api->KernelContext_GetInput(context, i, &value));
    for (int k = 0; k < MEMOS; k++) {
      const Memo *memo = &node->memos[k];
      if (candidates >> k & 1 && !(known && is_input(api, value, memo, &memo->tensors[i]))) leave(node, &candidates, k);
    }
  }
  /* The memos that are left have the same input shapes and values, and so the same output shapes. */
  for (size_t i = 0; candidates && i < node->outputs; i++) {
    int first = 0;
    while (!(candidates >> first & 1)) first++;
    const Tensor *it = &node->memos[first].tensors[node->inputs + i];
    OrtValue *value = NULL;
    void *data = NULL;
    int known = good(api, api->KernelContext_GetOutput(context, i, node->memos[first].dims + it->first, it->rank, &value)) &&
                value != NULL && good(api, api->GetTensorMutableData(value, &data));
    for (int k = 0; k < MEMOS; k++) {
      const Memo *memo = &node->memos[k];
      if (candidates >> k & 1 && !(known && is_output(data, &memo->tensors[node->inputs + i]))) leave(node, &candidates, k);
    }
  }
  int outcome = REFUSED;
  for (int k = 0; k < MEMOS; k++) {
    if (!(candidates >> k & 1)) continue;
    Memo *memo = &node->memos[k];
    if (outcome == REFUSED) {
      outcome = run_again(memo);
      if (outcome == DONE) {
        platform_add(&memo->hits, 1);
        platform_write(&memo->last, platform_add(&node->hits, 1));
      } else if (outcome == BEGUN) {
        platform_add(&memo->users, 1);
        *half = memo;
      }
    }
    leave(node, &candidates, k);
  }
  return outcome;
}

static OrtStatus *compute(OrtNodeComputeInfo *this, void *state, OrtKernelContext *context) {
  Node *node = (Node *)this;
  Memo *half = NULL;
  /* A Loop without an end runs its body here for as long as no call reaches Python. */
  int python = node->every && platform_add(&node->runs, 1) % node->every == 0;
  int outcome = !python && without_python() ? same_run(node, context, &half) : REFUSED;
  if (outcome == DONE) return NULL;
  if (outcome == REFUSED) return node->python(this, state, context);
  OrtStatus *status = node->python(this, half, context);
  platform_add(&half->users, -1);
  return status;
}
