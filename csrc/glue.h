/* The native half of a run: one call reads all inputs of a kernel, one makes an output, so that Python crosses the border
   a few times per run and not per tensor. Included into the cffi module after the declarations of ort_abi.py. */

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

/* Makes output `index` with the given shape; `*data` is NULL when nobody asked for it or memory ran out. */
static OrtStatus *wgpu_output(const OrtApi *api, OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                              void **data) {
  OrtValue *value = NULL;
  *data = NULL;
  OrtStatus *status = api->KernelContext_GetOutput(context, index, dims, rank, &value);
  if (status != NULL || value == NULL) return status;
  return api->GetTensorMutableData(value, data);
}

static void *wgpu_reserve(size_t bytes) { return platform_reserve(bytes); }

/* What ONNX Runtime hands to CreateKernel: Python's object, and the OrtApi that it is for. */
typedef struct { void *handle; const OrtApi *api; } WgpuKernels;

enum { WGPU_RUNTIME_EXCEPTION = 6 };
