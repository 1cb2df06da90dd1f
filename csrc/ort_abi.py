"""The part of ONNX Runtime's C interface that the plugin uses, as slots: position in the table, result, name, parameters.

In: nothing. Out: `declarations()`, C text that is both a cffi `cdef` and C source, and `callbacks()`, the functions that ONNX
Runtime calls in the plugin. Invariant: ONNX Runtime never moves a slot of a table and only appends, so a slot number is valid for
every later version. Unused slots are padding. `tests/plugin/test_abi.py` calls through them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# The tables end here. Fields that a newer ONNX Runtime appended are unknown and not used.
API_VERSION_KNOWN = 29
# The plugin needs the kernel registry and virtual hardware devices, which 1.24 introduced.
API_VERSION_NEEDED = 24

# C source before the declarations, which is not valid in a `cdef`. File names are wide on Windows; only the logger takes one of
# ours.
CHARACTERS = """
#ifdef _WIN32
typedef wchar_t ORTCHAR_T;
#else
typedef char ORTCHAR_T;
#endif
"""


class Slot(NamedTuple):
    """One entry of a table. `parameters` is None for a plain field."""

    index: int
    result: str
    name: str
    parameters: str | None


# Tables that ONNX Runtime fills and the plugin calls.
CALLED = {
    "OrtApiBase": """
        0   const OrtApi *GetApi(uint32_t version)
        1   const char *GetVersionString(void)
    """,
    "OrtApi": """
        0   OrtStatus *CreateStatus(int code, const char *message)
        1   int GetErrorCode(const OrtStatus *status)
        2   const char *GetErrorMessage(const OrtStatus *status)
        51  OrtStatus *GetTensorMutableData(OrtValue *value, void **out)
        55  OrtStatus *CastTypeInfoToTensorInfo(const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **out)
        60  OrtStatus *GetTensorElementType(const OrtTensorTypeAndShapeInfo *info, int *out)
        61  OrtStatus *GetDimensionsCount(const OrtTensorTypeAndShapeInfo *info, size_t *out)
        62  OrtStatus *GetDimensions(const OrtTensorTypeAndShapeInfo *info, int64_t *out, size_t count)
        63  OrtStatus *GetSymbolicDimensions(const OrtTensorTypeAndShapeInfo *info, const char **out, size_t count)
        90  OrtStatus *KernelContext_GetInput(const OrtKernelContext *context, size_t index, const OrtValue **out)
        91  OrtStatus *KernelContext_GetOutput(OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank, OrtValue **out)
        93  void ReleaseStatus(OrtStatus *status)
        94  void ReleaseMemoryInfo(OrtMemoryInfo *info)
        96  void ReleaseValue(OrtValue *value)
        211 OrtStatus *CreateOpAttr(const char *name, const void *data, int length, int type, OrtOpAttr **out)
        212 void ReleaseOpAttr(OrtOpAttr *attribute)
        247 OrtStatus *Logger_LogMessage(const OrtLogger *logger, int severity, const char *message, const ORTCHAR_T *file, int line, const char *function)
        248 OrtStatus *Logger_GetLoggingSeverityLevel(const OrtLogger *logger, int *out)
        272 OrtStatus *ReadOpAttr(const OrtOpAttr *attribute, int type, void *data, size_t bytes, size_t *out)
        286 void ReleaseNode(OrtNode *node)
        289 OrtStatus *GetValueInfoName(const OrtValueInfo *value, const char **out)
        290 OrtStatus *GetValueInfoTypeInfo(const OrtValueInfo *value, const OrtTypeInfo **out)
        291 const OrtModelEditorApi *GetModelEditorApi(void)
        295 void CreateKeyValuePairs(OrtKeyValuePairs **out)
        296 void AddKeyValuePair(OrtKeyValuePairs *pairs, const char *key, const char *value)
        298 void GetKeyValuePairs(const OrtKeyValuePairs *pairs, const char *const **keys, const char *const **values, size_t *count)
        300 void ReleaseKeyValuePairs(OrtKeyValuePairs *pairs)
        307 int HardwareDevice_Type(const OrtHardwareDevice *device)
        308 uint32_t HardwareDevice_VendorId(const OrtHardwareDevice *device)
        310 uint32_t HardwareDevice_DeviceId(const OrtHardwareDevice *device)
        317 const OrtEpApi *GetEpApi(void)
        318 OrtStatus *GetTensorSizeInBytes(const OrtValue *value, size_t *out)
        320 OrtStatus *CreateMemoryInfo_V2(const char *name, int device_type, uint32_t vendor_id, int32_t device_id, int memory_type, size_t alignment, int allocator_type, OrtMemoryInfo **out)
        326 OrtStatus *ValueInfo_GetInitializerValue(const OrtValueInfo *value, const OrtValue **out)
        327 OrtStatus *ValueInfo_GetExternalInitializerInfo(const OrtValueInfo *value, OrtExternalInitializerInfo **out)
        329 OrtStatus *ValueInfo_IsOptionalGraphInput(const OrtValueInfo *value, bool *out)
        331 OrtStatus *ValueInfo_IsConstantInitializer(const OrtValueInfo *value, bool *out)
        333 OrtStatus *Graph_GetName(const OrtGraph *graph, const char **out)
        334 OrtStatus *Graph_GetModelPath(const OrtGraph *graph, const ORTCHAR_T **out)
        336 OrtStatus *Graph_GetNumOperatorSets(const OrtGraph *graph, size_t *out)
        337 OrtStatus *Graph_GetOperatorSets(const OrtGraph *graph, const char **domains, int64_t *versions, size_t count)
        338 OrtStatus *Graph_GetNumInputs(const OrtGraph *graph, size_t *out)
        339 OrtStatus *Graph_GetInputs(const OrtGraph *graph, const OrtValueInfo **out, size_t count)
        340 OrtStatus *Graph_GetNumOutputs(const OrtGraph *graph, size_t *out)
        341 OrtStatus *Graph_GetOutputs(const OrtGraph *graph, const OrtValueInfo **out, size_t count)
        342 OrtStatus *Graph_GetNumInitializers(const OrtGraph *graph, size_t *out)
        343 OrtStatus *Graph_GetInitializers(const OrtGraph *graph, const OrtValueInfo **out, size_t count)
        344 OrtStatus *Graph_GetNumNodes(const OrtGraph *graph, size_t *out)
        345 OrtStatus *Graph_GetNodes(const OrtGraph *graph, const OrtNode **out, size_t count)
        346 OrtStatus *Graph_GetParentNode(const OrtGraph *graph, const OrtNode **out)
        349 OrtStatus *Node_GetName(const OrtNode *node, const char **out)
        350 OrtStatus *Node_GetOperatorType(const OrtNode *node, const char **out)
        351 OrtStatus *Node_GetDomain(const OrtNode *node, const char **out)
        352 OrtStatus *Node_GetSinceVersion(const OrtNode *node, int *out)
        353 OrtStatus *Node_GetNumInputs(const OrtNode *node, size_t *out)
        354 OrtStatus *Node_GetInputs(const OrtNode *node, const OrtValueInfo **out, size_t count)
        355 OrtStatus *Node_GetNumOutputs(const OrtNode *node, size_t *out)
        356 OrtStatus *Node_GetOutputs(const OrtNode *node, const OrtValueInfo **out, size_t count)
        357 OrtStatus *Node_GetNumImplicitInputs(const OrtNode *node, size_t *out)
        358 OrtStatus *Node_GetImplicitInputs(const OrtNode *node, const OrtValueInfo **out, size_t count)
        359 OrtStatus *Node_GetNumAttributes(const OrtNode *node, size_t *out)
        360 OrtStatus *Node_GetAttributes(const OrtNode *node, const OrtOpAttr **out, size_t count)
        362 OrtStatus *OpAttr_GetTensorAttributeAsOrtValue(const OrtOpAttr *attribute, OrtValue **out)
        363 OrtStatus *OpAttr_GetType(const OrtOpAttr *attribute, int *out)
        364 OrtStatus *OpAttr_GetName(const OrtOpAttr *attribute, const char **out)
        365 OrtStatus *Node_GetNumSubgraphs(const OrtNode *node, size_t *out)
        366 OrtStatus *Node_GetSubgraphs(const OrtNode *node, const OrtGraph **out, size_t count, const char **attributes)
        368 OrtStatus *Node_GetEpName(const OrtNode *node, const char **out)
        369 void ReleaseExternalInitializerInfo(OrtExternalInitializerInfo *info)
        370 const ORTCHAR_T *ExternalInitializerInfo_GetFilePath(const OrtExternalInitializerInfo *info)
        371 int64_t ExternalInitializerInfo_GetFileOffset(const OrtExternalInitializerInfo *info)
        372 size_t ExternalInitializerInfo_GetByteSize(const OrtExternalInitializerInfo *info)
        373 const char *GetRunConfigEntry(const OrtRunOptions *options, const char *key)
        378 OrtStatus *GetTensorData(const OrtValue *value, const void **out)
        379 OrtStatus *GetSessionOptionsConfigEntries(const OrtSessionOptions *options, OrtKeyValuePairs **out)
        390 bool TensorTypeAndShape_HasShape(const OrtTensorTypeAndShapeInfo *info)
        414 OrtStatus *GetTensorElementTypeAndShapeDataReference(const OrtValue *value, int *type, const int64_t **dims, size_t *rank)
    """,
    "OrtEpApi": """
        0   OrtStatus *CreateEpDevice(OrtEpFactory *factory, const OrtHardwareDevice *hardware, const OrtKeyValuePairs *metadata, const OrtKeyValuePairs *options, OrtEpDevice **out)
        2   OrtStatus *EpGraphSupportInfo_AddNodesToFuse(OrtEpGraphSupportInfo *info, const OrtNode *const *nodes, size_t count, const OrtNodeFusionOptions *options)
        3   OrtStatus *EpGraphSupportInfo_AddSingleNode(OrtEpGraphSupportInfo *info, const OrtNode *node)
        5   OrtStatus *EpDevice_AddAllocatorInfo(OrtEpDevice *device, const OrtMemoryInfo *info)
        6   const OrtMemoryDevice *MemoryInfo_GetMemoryDevice(const OrtMemoryInfo *info)
        9   int MemoryDevice_GetDeviceType(const OrtMemoryDevice *device)
        10  int MemoryDevice_GetMemoryType(const OrtMemoryDevice *device)
        11  uint32_t MemoryDevice_GetVendorId(const OrtMemoryDevice *device)
        12  uint32_t MemoryDevice_GetDeviceId(const OrtMemoryDevice *device)
        16  OrtStatus *CreateHardwareDevice(int type, uint32_t vendor_id, uint32_t device_id, const char *vendor, const OrtKeyValuePairs *metadata, OrtHardwareDevice **out)
        17  void ReleaseHardwareDevice(OrtHardwareDevice *device)
        18  OrtStatus *CreateKernelRegistry(OrtKernelRegistry **out)
        19  void ReleaseKernelRegistry(OrtKernelRegistry *registry)
        20  OrtStatus *KernelRegistry_AddKernel(OrtKernelRegistry *registry, const OrtKernelDef *definition, OrtKernelCreateFunc create, void *state)
        21  OrtStatus *CreateKernelDefBuilder(OrtKernelDefBuilder **out)
        22  void ReleaseKernelDefBuilder(OrtKernelDefBuilder *builder)
        23  OrtStatus *KernelDefBuilder_SetOperatorType(OrtKernelDefBuilder *builder, const char *name)
        24  OrtStatus *KernelDefBuilder_SetDomain(OrtKernelDefBuilder *builder, const char *domain)
        25  OrtStatus *KernelDefBuilder_SetSinceVersion(OrtKernelDefBuilder *builder, int start, int end)
        26  OrtStatus *KernelDefBuilder_SetExecutionProvider(OrtKernelDefBuilder *builder, const char *name)
        27  OrtStatus *KernelDefBuilder_SetInputMemType(OrtKernelDefBuilder *builder, size_t index, int type)
        28  OrtStatus *KernelDefBuilder_SetOutputMemType(OrtKernelDefBuilder *builder, size_t index, int type)
        29  OrtStatus *KernelDefBuilder_AddTypeConstraint(OrtKernelDefBuilder *builder, const char *name, const OrtDataType *const *types, size_t count)
        32  OrtStatus *KernelDefBuilder_Build(OrtKernelDefBuilder *builder, OrtKernelDef **out)
        33  void ReleaseKernelDef(OrtKernelDef *definition)
        40  OrtStatus *GetTensorDataType(int type, const OrtDataType **out)
        41  OrtStatus *EpGraphSupportInfo_LookUpKernel(OrtEpGraphSupportInfo *info, const OrtNode *node, const OrtKernelDef **out)
        45  OrtStatus *CreateIfKernel(const OrtKernelInfo *info, OrtKernelImpl **out)
        46  OrtStatus *CreateLoopKernel(const OrtKernelInfo *info, OrtLoopKernelHelper *helper, OrtKernelImpl **out)
        47  OrtStatus *CreateScanKernel(const OrtKernelInfo *info, OrtScanKernelHelper *helper, OrtKernelImpl **out)
        49  OrtStatus *GetEnvConfigEntries(OrtKeyValuePairs **out)
        65  OrtStatus *CreateProfilingEvent(int category, int32_t process, int32_t thread, const char *name, int64_t microseconds, int64_t duration, const char *const *keys, const char *const *values, size_t count, OrtProfilingEvent **out)
        66  void ReleaseProfilingEvent(OrtProfilingEvent *event)
        69  OrtStatus *ProfilingEvent_GetTimestampUs(const OrtProfilingEvent *event, int64_t *out)
        70  OrtStatus *ProfilingEvent_GetDurationUs(const OrtProfilingEvent *event, int64_t *out)
        72  OrtStatus *ProfilingEventsContainer_AddEvents(OrtProfilingEventsContainer *container, const OrtProfilingEvent *const *events, size_t count)
    """,
    "OrtModelEditorApi": """
        6   OrtStatus *CreateNode(const char *operator_type, const char *domain, const char *name, const char *const *inputs, size_t input_count, const char *const *outputs, size_t output_count, OrtOpAttr **attributes, size_t attribute_count, OrtNode **out)
    """,
}

# Tables that the plugin fills and ONNX Runtime calls. The first field of each is the version that the plugin implements.
FILLED = {
    "OrtEpFactory": """
        0   uint32_t ort_version_supported
        1   const char *GetName(const OrtEpFactory *self)
        2   const char *GetVendor(const OrtEpFactory *self)
        3   OrtStatus *GetSupportedDevices(OrtEpFactory *self, const OrtHardwareDevice *const *hardware, size_t count, OrtEpDevice **out, size_t capacity, size_t *out_count)
        4   OrtStatus *CreateEp(OrtEpFactory *self, const OrtHardwareDevice *const *hardware, const OrtKeyValuePairs *const *metadata, size_t count, const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **out)
        5   void ReleaseEp(OrtEpFactory *self, OrtEp *provider)
        6   uint32_t GetVendorId(const OrtEpFactory *self)
        7   const char *GetVersion(const OrtEpFactory *self)
        8   OrtStatus *ValidateCompiledModelCompatibilityInfo(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t count, const char *info, int *out)
        9   OrtStatus *CreateAllocator(OrtEpFactory *self, const OrtMemoryInfo *info, const OrtKeyValuePairs *options, OrtAllocator **out)
        10  void ReleaseAllocator(OrtEpFactory *self, OrtAllocator *allocator)
        11  OrtStatus *CreateDataTransfer(OrtEpFactory *self, OrtDataTransferImpl **out)
        12  bool IsStreamAware(const OrtEpFactory *self)
        20  void *last
    """,
    "OrtEp": """
        0   uint32_t ort_version_supported
        1   const char *GetName(const OrtEp *self)
        2   OrtStatus *GetCapability(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *info)
        3   OrtStatus *Compile(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t count, OrtNodeComputeInfo **out, OrtNode **context_nodes)
        4   void ReleaseNodeComputeInfos(OrtEp *self, OrtNodeComputeInfo **infos, size_t count)
        8   OrtStatus *OnRunStart(OrtEp *self, const OrtRunOptions *options)
        10  OrtStatus *CreateAllocator(OrtEp *self, const OrtMemoryInfo *info, OrtAllocator **out)
        12  const char *GetCompiledModelCompatibilityInfo(OrtEp *self, const OrtGraph *graph)
        13  OrtStatus *GetKernelRegistry(OrtEp *self, const OrtKernelRegistry **out)
        14  OrtStatus *IsConcurrentRunSupported(OrtEp *self, bool *out)
        15  OrtStatus *Sync(OrtEp *self)
        16  OrtStatus *CreateProfiler(OrtEp *self, OrtEpProfilerImpl **out)
        17  bool IsGraphCaptureEnabled(const OrtEp *self)
        18  bool IsGraphCaptured(const OrtEp *self, int graph_id)
        19  OrtStatus *ReplayGraph(OrtEp *self, int graph_id)
        20  int GetGraphCaptureNodeAssignmentPolicy(const OrtEp *self)
        22  OrtStatus *OnSessionInitializationEnd(OrtEp *self)
        23  OrtStatus *GetDefaultMemoryDevice(const OrtEp *self, const OrtMemoryDevice **device)
        24  OrtStatus *ReleaseCapturedGraph(OrtEp *self, int graph_id)
        25  void *last
    """,
    "OrtNodeComputeInfo": """
        0   uint32_t ort_version_supported
        1   OrtStatus *CreateState(OrtNodeComputeInfo *self, OrtNodeComputeContext *context, void **out)
        2   OrtStatus *Compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context)
        3   void ReleaseState(OrtNodeComputeInfo *self, void *state)
    """,
    "OrtKernelImpl": """
        0   uint32_t ort_version_supported
        1   uint32_t flags
        2   OrtStatus *Compute(OrtKernelImpl *self, OrtKernelContext *context)
        3   void Release(OrtKernelImpl *self)
        5   void *last
    """,
    "OrtLoopKernelHelper": """
        0   uint32_t ort_version_supported
        1   void Release(OrtLoopKernelHelper *self)
        2   OrtStatus *ConcatOutput(OrtLoopKernelHelper *self, void *stream, const OrtValue *const *parts, size_t count, void *output, size_t bytes)
    """,
    "OrtScanKernelHelper": """
        0   uint32_t ort_version_supported
        1   void Release(OrtScanKernelHelper *self)
        2   OrtStatus *Transpose(OrtScanKernelHelper *self, const size_t *axes, size_t count, const OrtValue *input, OrtSyncStream *stream, OrtValue *output)
    """,
    "OrtAllocator": """
        0   uint32_t version
        1   void *Alloc(OrtAllocator *self, size_t bytes)
        2   void Free(OrtAllocator *self, void *address)
        3   const OrtMemoryInfo *Info(const OrtAllocator *self)
        4   void *Reserve(OrtAllocator *self, size_t bytes)
        5   OrtStatus *GetStats(const OrtAllocator *self, OrtKeyValuePairs **out)
        7   void *last
    """,
    "OrtDataTransferImpl": """
        0   uint32_t ort_version_supported
        1   void Release(OrtDataTransferImpl *self)
        2   bool CanCopy(const OrtDataTransferImpl *self, const OrtMemoryDevice *source, const OrtMemoryDevice *destination)
        3   OrtStatus *CopyTensors(OrtDataTransferImpl *self, const OrtValue **sources, OrtValue **destinations, OrtSyncStream **streams, size_t count)
    """,
    "OrtEpProfilerImpl": """
        0   uint32_t ort_version_supported
        1   void Release(OrtEpProfilerImpl *self)
        2   OrtStatus *StartProfiling(OrtEpProfilerImpl *self, int64_t elapsed)
        3   OrtStatus *StartEvent(OrtEpProfilerImpl *self, uint64_t event)
        4   OrtStatus *StopEvent(OrtEpProfilerImpl *self, uint64_t event, const OrtProfilingEvent *record)
        5   OrtStatus *EndProfiling(OrtEpProfilerImpl *self, OrtProfilingEventsContainer *container)
    """,
    "OrtNodeFusionOptions": """
        0   uint32_t ort_version_supported
        1   bool drop_constant_initializers
    """,
}

# Functions outside a table. ONNX Runtime finds the first two by name. The third is registered per kernel. Our C code calls the
# last one before a thread waits for a queue.
LOOSE = """
    0   OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger, OrtEpFactory **out, size_t capacity, size_t *out_count)
    1   OrtStatus *ReleaseEpFactory(OrtEpFactory *factory)
    2   OrtStatus *CreateKernel(void *state, const OrtKernelInfo *info, OrtKernelImpl **out)
    3   void RunDeferred(const void *queue)
"""

_LINE = re.compile(r"(\d+)\s+(.*?)(\w+)(?:\((.*)\))?$")


def slots(table: str) -> list[Slot]:
    """Returns the slots of one table text, in order."""
    found = []
    for line in table.strip().splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            raise ValueError(f"not a slot: {line!r}")
        index, result, name, parameters = match.groups()
        found.append(Slot(int(index), result.strip(), name, parameters))
    if [slot.index for slot in found] != sorted({slot.index for slot in found}):
        raise ValueError(f"slots out of order in {found[0]}")
    return found


def _pointer(slot: Slot) -> str:
    if slot.parameters is None:
        return f"{slot.result} {slot.name}"
    return f"{slot.result} (*{slot.name})({slot.parameters})"


def _struct(name: str, table: str) -> str:
    lines, position = [], 0
    for slot in slots(table):
        if slot.result == "uint32_t" and slot.parameters is None and slot.index == 1:
            lines.append(f"  {_pointer(slot)};")  # shares the first eight bytes with the version
            position = slot.index + 1
            continue
        if slot.index > position:
            lines.append(f"  void *unused_{position}[{slot.index - position}];")
        lines.append(f"  {_pointer(slot)};")
        position = slot.index + 1
    return f"struct {name} {{\n" + "\n".join(lines) + "\n};"


def callbacks() -> list[tuple[str, Slot]]:
    """Returns every function that ONNX Runtime calls in the plugin: (C name, slot)."""
    found = [(slot.name, slot) for slot in slots(LOOSE)]
    for name, table in FILLED.items():
        found += [(f"{name}_{slot.name}", slot) for slot in slots(table) if slot.parameters is not None]
    return found


def declarations(others: dict[str, str] | None = None) -> str:
    """Types and tables: C text for cffi's `cdef` and for the C source alike.

    `others` replaces tables: tests describe a client of ONNX Runtime, which calls other functions, with it.
    """
    tables = CALLED | FILLED | (others or {})
    named = re.findall(r"\bOrt[A-Z]\w*\b", "".join(tables.values()) + LOOSE)
    names = sorted({*named, *tables} - {"OrtKernelCreateFunc"})
    text = [f"typedef struct {name} {name};" for name in names]
    create = slots(LOOSE)[2]
    text.append(f"typedef {create.result} (*OrtKernelCreateFunc)({create.parameters});")
    text += [_struct(name, table) for name, table in tables.items()]
    return "\n".join(text) + "\n"
