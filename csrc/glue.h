/* The native half of a run: one call reads all inputs of a kernel, one makes an output, so that Python crosses the border
   a few times per run and not per tensor. Included into the cffi module after the declarations of ort_abi.py. */
#include "marks.h"

/* One tensor as ONNX Runtime gives it. `type` is the ONNX element type code, 0 for an input that was left out.
   `dims` belongs to ONNX Runtime and lives as long as the value. */
typedef struct {
  void *data;
  const int64_t *dims;
  size_t rank;
  int type;
} WgpuTensor;

static OrtStatus *wgpu_tensor(const OrtApi *api, const OrtValue *value, WgpuTensor *out) {
  OrtStatus *status = api->GetTensorElementTypeAndShapeDataReference(value, &out->type, &out->dims, &out->rank);
  if (status != NULL) return status;
  const void *data = NULL;
  status = api->GetTensorData(value, &data);
  out->data = (void *)data;
  return status;
}

static OrtStatus *wgpu_inputs(const OrtApi *api, OrtKernelContext *context, size_t count, WgpuTensor *out) {
  for (size_t i = 0; i < count; i++) {
    const OrtValue *value = NULL;
    OrtStatus *status = api->KernelContext_GetInput(context, i, &value);
    if (status != NULL) return status;
    if (value == NULL) {
      memset(&out[i], 0, sizeof out[i]);
      continue;
    }
    status = wgpu_tensor(api, value, &out[i]);
    if (status != NULL) return status;
  }
  return NULL;
}

/* Makes the outputs with these numbers; `dims` are those of all, `ranks` says how many each has. `data[k]` is NULL when nobody
   asked for it or memory ran out. */
static OrtStatus *wgpu_outputs(const OrtApi *api, OrtKernelContext *context, size_t count, const size_t *numbers,
                               const int64_t *dims, const size_t *ranks, void **data) {
  for (size_t k = 0; k < count; dims += ranks[k], k++) {
    OrtValue *value = NULL;
    data[k] = NULL;
    OrtStatus *status = api->KernelContext_GetOutput(context, numbers[k], dims, ranks[k], &value);
    if (status == NULL && value != NULL) status = api->GetTensorMutableData(value, &data[k]);
    if (status != NULL) return status;
  }
  return NULL;
}

enum { WGPU_MOST_AXES = 8 }; /* of a tensor that is known; others are looked at in every run */

/* A tensor of an earlier run: marks of the memory at `data` are still `place` and `value` when it is the same. */
typedef struct {
  const void *data; /* NULL: nothing is known */
  const uint64_t *marks;
  uint64_t place, value;
  int type;
  size_t rank;
  int64_t dims[WGPU_MOST_AXES];
} WgpuKnown;

static int wgpu_stands(const WgpuKnown *it, const void *data, int valued) {
  return it->data != NULL && it->data == data && marks_stand(it->marks, it->place, it->value, valued);
}

/* The inputs that are not those known, by number; how many. What memory holds does not matter. */
static size_t wgpu_other_inputs(const WgpuTensor *now, const WgpuKnown *known, size_t count, size_t *others) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    const WgpuTensor *a = &now[i];
    const WgpuKnown *b = &known[i];
    if (!wgpu_stands(b, a->data, 0) || a->type != b->type || a->rank != b->rank ||
        (a->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims)))
      others[found++] = i;
  }
  return found;
}

/* The same for outputs, whose memory must have no host copy now if it had none then. Their types and shapes are the same. */
static size_t wgpu_other_outputs(void *const *now, const WgpuKnown *known, size_t count, size_t *others) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++)
    if (!wgpu_stands(&known[i], now[i], 1)) others[found++] = i;
  return found;
}

static void *wgpu_reserve(size_t bytes) { return platform_reserve(bytes); }

/* What ONNX Runtime hands to CreateKernel: Python's object, and the OrtApi that it is for. */
typedef struct { void *handle; const OrtApi *api; } WgpuKernels;

enum { WGPU_RUNTIME_EXCEPTION = 6 };
