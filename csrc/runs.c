/* Runs of a compiled node, without Python: detects which of its tensors are at the same places, and repeats equal runs.
 *
 * In: a Node, which ONNX Runtime calls as its OrtNodeComputeInfo, with memos of earlier runs from plugin/memo.py; and tensors
 * from plugin/known_tensors.py. Out: the same work is submitted again, or the Python function is called, which does everything
 * else and reports every error. If a work was submitted in part, the Python function receives the memo in place of the node's state.
 *
 * Invariants: a memo is used only while everything that it depends on is unchanged: addresses, types, shapes, and the marks of
 * the memory. `users` is incremented before `live` is read, and Python ends a memo by clearing `live` before it reads `users`,
 * so one of both sees the other. Errors here are dropped, because the Python function repeats the work and reports them; only
 * an error of partly submitted work is kept.
 */
#include "outcomes.h"
#include "queue.h"
#include "without_python.h"

enum { LEFT_OUT = 0, MOST_AXES = 16 /* of a tensor that is known or in a memo; tensors with more are checked in every run */ };

/* A tensor from ONNX Runtime. `dims` belongs to ONNX Runtime and lives as long as the value. */
typedef struct {
  void *data;
  const int64_t *dims;
  size_t rank;
  int type; /* ONNX element type; LEFT_OUT for an omitted input */
} Given;

/* An input or output of an earlier run, and the two marks of its memory (plugin/memory/allocation.py). One changes when the range
 * gets another buffer, the other when its host copy changes. For a series of runs these are of the first one, and `more` is how
 * much each extent grows per run. */
typedef struct {
  const void *data;      /* its address; NULL if it is empty or omitted, and then any address matches */
  const uint64_t *marks; /* of its memory; NULL if any match */
  uint64_t place, value; /* the required marks */
  int valued;            /* whether the contents of the memory matter */
  int type;
  size_t rank;
  int64_t dims[MOST_AXES], more[MOST_AXES];
} Tensor;

/* Returns whether the memory at an address is that of an earlier run. */
static int is_there(const Tensor *it, const void *data) {
  const volatile uint64_t *marks = it->marks; /* another thread may write them */
  return (it->data == NULL || data == it->data) &&
         (marks == NULL || (marks[0] == it->place && (!it->valued || marks[1] == it->value)));
}

static int is_same(const Tensor *it, const Given *now) {
  return now->type == it->type && now->rank == it->rank && is_there(it, now->data) &&
         (now->rank == 0 || memcmp(now->dims, it->dims, now->rank * sizeof *now->dims) == 0);
}

/* Like `is_same`, for a memo of `count` runs. `number` is the index of the run, or -1 before a tensor has determined it. */
static int is_one_of(const Tensor *it, const Given *now, int64_t count, int64_t *number) {
  if (now->type != it->type || now->rank != it->rank || !is_there(it, now->data)) return 0;
  for (size_t k = 0; k < now->rank; k++) {
    int64_t grown = now->dims[k] - it->dims[k], more = it->more[k];
    if (more == 0 && grown == 0) continue;
    if (more == 0 || grown % more != 0 || grown / more < 0 || grown / more >= count) return 0;
    if (*number >= 0 && *number != grown / more) return 0;
    *number = grown / more;
  }
  return 1;
}

/* ---- for Python: one call reads all inputs of a node, and one makes all outputs. So the language boundary is crossed a few
 * times per run and not per tensor. */

static OrtStatus *read_tensor(const OrtApi *api, const OrtValue *value, Given *out) {
  OrtStatus *status = api->GetTensorElementTypeAndShapeDataReference(value, &out->type, &out->dims, &out->rank);
  if (status != NULL) return status;
  const void *data = NULL;
  status = api->GetTensorData(value, &data);
  out->data = (void *)data;
  return status;
}

static OrtStatus *read_input(const OrtApi *api, const OrtKernelContext *context, size_t number, Given *out) {
  const OrtValue *value = NULL;
  OrtStatus *status = api->KernelContext_GetInput(context, number, &value);
  if (status == NULL && value != NULL) return read_tensor(api, value, out);
  memset(out, 0, sizeof *out);
  return status;
}

/* Makes an output. `data` is NULL if it is not requested or memory ran out. */
static OrtStatus *make_output(const OrtApi *api, OrtKernelContext *context, size_t number, const int64_t *dims, size_t rank, void **data) {
  OrtValue *value = NULL;
  *data = NULL;
  OrtStatus *status = api->KernelContext_GetOutput(context, number, dims, rank, &value);
  return status == NULL && value != NULL ? api->GetTensorMutableData(value, data) : status;
}

static OrtStatus *read_inputs(const OrtApi *api, OrtKernelContext *context, size_t count, Given *out) {
  OrtStatus *status = NULL;
  for (size_t i = 0; status == NULL && i < count; i++) status = read_input(api, context, i, &out[i]);
  return status;
}

/* Makes the outputs with these numbers. `dims` has the extents of all, `ranks` their numbers. */
static OrtStatus *make_outputs(const OrtApi *api, OrtKernelContext *context, size_t count, const size_t *numbers, const int64_t *dims,
                               const size_t *ranks, void **data) {
  OrtStatus *status = NULL;
  for (size_t k = 0; status == NULL && k < count; dims += ranks[k], k++)
    status = make_output(api, context, numbers[k], dims, ranks[k], &data[k]);
  return status;
}

/* Finds the inputs that differ from the known ones (`data` NULL: unknown), by number. Returns how many. */
static size_t other_inputs(const Given *now, const Tensor *known, size_t count, size_t *others) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++)
    if (known[i].data == NULL || !is_same(&known[i], &now[i])) others[found++] = i;
  return found;
}

/* The same for outputs with equal types and shapes. */
static size_t other_outputs(void *const *now, const Tensor *known, size_t count, size_t *others) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++)
    if (known[i].data == NULL || !is_there(&known[i], now[i])) others[found++] = i;
  return found;
}

/* ---- memos */

/* One run, or a series of `count` runs with growing sizes (program/series.py). `number` of `run` is the index in the series. */
typedef struct {
  int64_t live, users, hits, last;
  int64_t begun;         /* how many memos this entry has held */
  int64_t graph;         /* the required value of `begun`, if the session captures */
  int64_t count;
  const Tensor *tensors; /* inputs of the node, then outputs */
  int (*run)(void *work, size_t number);
  void *work;
} Memo;

typedef struct {
  OrtNodeComputeInfo table; /* first: ONNX Runtime's pointer is the Node's */
  const OrtApi *api;
  size_t inputs, outputs;
  int captured; /* whether the session captures its runs */
  int64_t every, runs; /* Python does one of this many runs, so that interrupts are handled; 0: none */
  int64_t hits; /* of all memos; orders them by their last use */
  Memo memos[MEMOS]; /* of the last runs; build_ort.py defines the number, at most 32 */
} Node;
API_BEHIND_TABLE(Node);

/* For the run of this thread in a session that captures: the number of a captured graph; 0 for a new one. */
static PLATFORM_THREAD_LOCAL int64_t begun;
static void begin_run(int64_t graph) { begun = graph; }

static void memo_begin(Memo *memo) {
  platform_add(&memo->begun, 1);
  platform_write(&memo->live, 1);
}

/* Ends a memo. Returns whether no thread uses it, so that its work may be released; otherwise call again. */
static int memo_end(Memo *memo) {
  platform_write(&memo->live, 0);
  return platform_read(&memo->users) == 0;
}

static void leave(Node *node, unsigned *candidates, int number) {
  platform_add(&node->memos[number].users, -1);
  *candidates &= ~(1u << number);
}

static void note_hit(Node *node, Memo *memo) {
  platform_add(&memo->hits, 1);
  platform_write(&memo->last, platform_add(&node->hits, 1));
}

/* A run that C code has done: its memo, and the memo's `begun` then. `node` is NULL for a run that Python has done. */
typedef struct {
  Node *node;
  Memo *memo;
  int64_t begun;
  size_t number;
} PastRun;

static PLATFORM_THREAD_LOCAL uint64_t past_count;
static PLATFORM_THREAD_LOCAL PastRun past[MOST_CHAINED];

static void note_run(Node *node, Memo *memo, int64_t number) {
  past[past_count++ % MOST_CHAINED] = (PastRun){node, memo, memo != NULL ? memo->begun : 0, (size_t)number};
}

static int run_again(const Memo *memo, int64_t number) {
  PyThreadState *python = without_its_lock();
  int outcome = memo->run(memo->work, (size_t)number);
  python_again(python);
  return outcome;
}

/* Repeats the run of a memo and returns the outcome; REFUSED if no memo matches. With BEGUN, `half` is the memo, which stays in
 * use. */
static int same_run(Node *node, OrtKernelContext *context, Memo **half) {
  const OrtApi *api = node->api;
  unsigned candidates = 0;
  int64_t numbers[MEMOS];
  for (int k = 0; k < MEMOS; k++) {
    Memo *memo = &node->memos[k];
    if (!platform_read(&memo->live)) continue;
    numbers[k] = -1;
    candidates |= 1u << k;
    platform_add(&memo->users, 1);
    if (!platform_read(&memo->live) || (node->captured && memo->graph != begun)) leave(node, &candidates, k);
  }
  for (size_t i = 0; candidates && i < node->inputs; i++) {
    Given now;
    int known = good(api, read_input(api, context, i, &now));
    for (int k = 0; k < MEMOS; k++) {
      if (!(candidates >> k & 1)) continue;
      const Memo *memo = &node->memos[k];
      if (!known || !is_one_of(&memo->tensors[i], &now, memo->count, &numbers[k])) leave(node, &candidates, k);
    }
  }
  for (int k = 0; k < MEMOS; k++)
    if (candidates >> k & 1 && numbers[k] < 0) {
      if (node->memos[k].count == 1) numbers[k] = 0;
      else leave(node, &candidates, k); /* no input grows */
    }
  /* The remaining memos have the same input shapes and values, and so the same output shapes. */
  for (size_t i = node->inputs; candidates && i < node->inputs + node->outputs; i++) {
    int first = 0;
    while (!(candidates >> first & 1)) first++;
    const Tensor *it = &node->memos[first].tensors[i];
    void *data = NULL;
    int64_t dims[MOST_AXES];
    for (size_t axis = 0; axis < it->rank; axis++) dims[axis] = it->dims[axis] + numbers[first] * it->more[axis];
    int known = good(api, make_output(api, context, i - node->inputs, dims, it->rank, &data));
    for (int k = 0; k < MEMOS; k++)
      if (candidates >> k & 1 && !(known && is_there(&node->memos[k].tensors[i], data))) leave(node, &candidates, k);
  }
  int outcome = REFUSED;
  for (int k = 0; k < MEMOS; k++) {
    if (!(candidates >> k & 1)) continue;
    Memo *memo = &node->memos[k];
    if (outcome == REFUSED) {
      outcome = run_again(memo, numbers[k]);
      if (outcome == DONE) {
        note_hit(node, memo);
        note_run(node, memo, numbers[k]);
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
  /* An endless Loop runs its body here, and could not be interrupted if no call reached Python. */
  int python = node->every && platform_add(&node->runs, 1) % node->every == 0;
  int outcome = !python && without_python() ? same_run(node, context, &half) : REFUSED;
  if (outcome == DONE) return NULL;
  note_run(NULL, NULL, 0);
  if (outcome == REFUSED) return c_OrtNodeComputeInfo_Compute(this, state, context);
  OrtStatus *status = c_OrtNodeComputeInfo_Compute(this, half, context);
  platform_add(&half->users, -1);
  return status;
}

/* ---- chained runs: the last runs of a thread, again and in one submission (chain.c) */

/* Returns how many runs this thread has done. `out` receives the last `count` of them. */
static uint64_t past_runs(PastRun *out, size_t count) {
  for (size_t k = 0; k < count; k++) out[k] = past[(past_count - count + k) % MOST_CHAINED];
  return past_count;
}

static void leave_run(const PastRun *it) { platform_add(&it->memo->users, -1); }

/* Checks that a run can be repeated with its tensors in place: everything that its memo depends on is unchanged. Puts it in use
 * then. */
static int enter_run(const PastRun *it) {
  Memo *memo = it->memo;
  platform_add(&memo->users, 1);
  int good = platform_read(&memo->live) && memo->begun == it->begun;
  for (size_t i = 0; good && i < it->node->inputs + it->node->outputs; i++)
    good = is_there(&memo->tensors[i], memo->tensors[i].data);
  if (!good) leave_run(it);
  return good;
}

static int is_among(const void *address, void *const *addresses, size_t count) {
  for (size_t k = 0; k < count; k++)
    if (addresses[k] == address) return 1;
  return 0;
}

/* Returns whether runs read and write only tensors at these addresses, and write all `results`, which are the first of them.
 * Then other work of the session does not affect them. */
static int are_all(const PastRun *runs, size_t count, void *const *addresses, size_t of_them, size_t results) {
  int good = 1;
  size_t written = 0;
  for (size_t i = 0; good && i < count; i++) {
    if (!enter_run(&runs[i])) return 0;
    const Node *node = runs[i].node;
    const Tensor *tensors = runs[i].memo->tensors;
    for (size_t k = 0; good && k < node->inputs + node->outputs; k++)
      good = tensors[k].data == NULL || is_among(tensors[k].data, addresses, of_them);
    for (size_t k = 0; k < node->outputs; k++) written += is_among(tensors[node->inputs + k].data, addresses, results);
    leave_run(&runs[i]);
  }
  return good && written == results;
}

/* The runs to repeat, and how. */
typedef struct {
  const PastRun *runs;
  size_t count;
  int (*submit)(void *chain, void *const *works, const size_t *numbers, size_t count);
  void *chain;
} ChainedRuns;

/* Repeats all runs or none. Returns whether it did. */
static int run_chained(const ChainedRuns *it) {
  void *works[MOST_CHAINED] = {NULL};
  size_t numbers[MOST_CHAINED] = {0}, entered = 0;
  if (!without_python()) return 0;
  while (entered < it->count && enter_run(&it->runs[entered])) {
    works[entered] = it->runs[entered].memo->work;
    numbers[entered] = it->runs[entered].number;
    entered++;
  }
  int done = entered == it->count && it->submit(it->chain, works, numbers, entered) == DONE;
  while (entered--) {
    if (done) note_hit(it->runs[entered].node, it->runs[entered].memo);
    leave_run(&it->runs[entered]);
  }
  return done;
}
