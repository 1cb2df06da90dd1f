"""A client of ONNX Runtime's C interface: the shared library of the wheel, beside the copy inside its Python module.

What onnxruntime-genai, C#, Java and C++ programs do, in a few lines; host.c does the same without Python.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "csrc"))
import declared as declared
import ort_abi

# Slots that only a client calls.
CLIENT = """
    0   OrtStatus *CreateStatus(int code, const char *message)
    1   int GetErrorCode(const OrtStatus *status)
    2   const char *GetErrorMessage(const OrtStatus *status)
    3   OrtStatus *CreateEnv(int severity, const char *name, OrtEnv **out)
    8   OrtStatus *CreateSessionFromArray(const OrtEnv *env, const void *model, size_t bytes, const OrtSessionOptions *options, OrtSession **out)
    9   OrtStatus *Run(OrtSession *session, const void *options, const char *const *names, const OrtValue *const *inputs, size_t count, const char *const *outputs, size_t output_count, OrtValue **out)
    10  OrtStatus *CreateSessionOptions(OrtSessionOptions **out)
    39  OrtStatus *CreateRunOptions(OrtRunOptions **out)
    49  OrtStatus *CreateTensorWithDataAsOrtValue(const OrtMemoryInfo *info, void *data, size_t bytes, const int64_t *dims, size_t rank, int type, OrtValue **out)
    51  OrtStatus *GetTensorMutableData(OrtValue *value, void **out)
    68  OrtStatus *CreateMemoryInfo(const char *name, int allocator, int id, int memory, OrtMemoryInfo **out)
    69  OrtStatus *CreateCpuMemoryInfo(int allocator, int memory, OrtMemoryInfo **out)
    75  OrtStatus *AllocatorAlloc(OrtAllocator *allocator, size_t bytes, void **out)
    76  OrtStatus *AllocatorFree(OrtAllocator *allocator, void *address)
    92  void ReleaseEnv(OrtEnv *env)
    93  void ReleaseStatus(OrtStatus *status)
    94  void ReleaseMemoryInfo(OrtMemoryInfo *info)
    95  void ReleaseSession(OrtSession *session)
    96  void ReleaseValue(OrtValue *value)
    97  void ReleaseRunOptions(OrtRunOptions *options)
    100 void ReleaseSessionOptions(OrtSessionOptions *options)
    131 OrtStatus *CreateAllocator(const OrtSession *session, const OrtMemoryInfo *info, OrtAllocator **out)
    132 void ReleaseAllocator(OrtAllocator *allocator)
    295 void CreateKeyValuePairs(OrtKeyValuePairs **out)
    296 void AddKeyValuePair(OrtKeyValuePairs *pairs, const char *key, const char *value)
    301 OrtStatus *RegisterExecutionProviderLibrary(OrtEnv *env, const char *name, const char *path)
    302 OrtStatus *UnregisterExecutionProviderLibrary(OrtEnv *env, const char *name)
    303 OrtStatus *GetEpDevices(const OrtEnv *env, const OrtEpDevice *const **out, size_t *count)
    304 OrtStatus *SessionOptionsAppendExecutionProvider_V2(OrtSessionOptions *options, OrtEnv *env, const OrtEpDevice *const *devices, size_t count, const char *const *keys, const char *const *values, size_t option_count)
    312 const char *EpDevice_EpName(const OrtEpDevice *device)
    320 OrtStatus *CreateMemoryInfo_V2(const char *name, int device_type, uint32_t vendor_id, int32_t device_id, int memory_type, size_t alignment, int allocator_type, OrtMemoryInfo **out)
    386 OrtStatus *CopyTensors(const OrtEnv *env, const OrtValue *const *sources, OrtValue *const *destinations, void *stream, size_t count)
    406 OrtStatus *CreateEnvWithOptions(const OrtEnvCreationOptions *options, OrtEnv **out)
    415 OrtStatus *RunOptionsEnableProfiling(OrtRunOptions *options, const ORTCHAR_T *prefix)
"""  # noqa: E501
ENVIRONMENT = """
    struct OrtEnvCreationOptions {
      uint32_t version;
      int32_t severity;
      const char *name;
      void *unused[3];
      const OrtKeyValuePairs *entries;
    };
"""


class Runtime:
    """One copy of ONNX Runtime with an environment. `api` has the client's slots."""

    def __init__(self, entries: dict[str, str] | None = None) -> None:
        """`entries` configure the environment."""
        self.ffi = cffi.FFI()
        self.ffi.cdef("typedef char ORTCHAR_T;\n" + ort_abi.declarations({"OrtApi": CLIENT}) + ENVIRONMENT)
        (path,) = (Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")
        self.library = ctypes.CDLL(str(path))
        self.library.OrtGetApiBase.restype = ctypes.c_void_p
        base = self.ffi.cast("OrtApiBase *", self.library.OrtGetApiBase())
        self.version = self.ffi.string(base.GetVersionString()).decode()
        known = min(int(self.version.split(".")[1]), ort_abi.API_VERSION_KNOWN)
        self.api = self.ffi.cast("OrtApi *", base.GetApi(known))
        self.env = (
            self._environment(entries) if entries else self.out(self.api.CreateEnv, "OrtEnv *", 3, self.text("client"))
        )

    def _environment(self, entries: dict[str, str]) -> Any:
        pairs = self.ffi.new("OrtKeyValuePairs **")
        self.api.CreateKeyValuePairs(pairs)
        for key, value in entries.items():
            self.api.AddKeyValuePair(pairs[0], self.text(key), self.text(value))
        options = self.ffi.new("OrtEnvCreationOptions *")
        name = self.text("client")
        options.version, options.severity, options.name = ort_abi.API_VERSION_NEEDED, 3, name
        options.entries = pairs[0]
        return self.out(self.api.CreateEnvWithOptions, "OrtEnv *", options)

    def text(self, value: str) -> Any:
        return self.ffi.new("char[]", value.encode())

    def check_status(self, status: Any) -> None:
        if status:
            message = self.ffi.string(self.api.GetErrorMessage(status)).decode()
            self.api.ReleaseStatus(status)
            raise RuntimeError(message)

    def out(self, function: Any, kind: str, *arguments: Any) -> Any:
        """The result of a function whose last parameter is a pointer to it."""
        result = self.ffi.new(kind + " *")
        self.check_status(function(*arguments, result))
        return result[0]

    def register(self, name: str, path: str) -> None:
        self.check_status(self.api.RegisterExecutionProviderLibrary(self.env, self.text(name), self.text(path)))

    def unregister(self, name: str) -> None:
        self.check_status(self.api.UnregisterExecutionProviderLibrary(self.env, self.text(name)))

    def devices(self, provider: str) -> list[Any]:
        found, count = self.ffi.new("const OrtEpDevice *const **"), self.ffi.new("size_t *")
        self.check_status(self.api.GetEpDevices(self.env, found, count))
        devices = [found[0][i] for i in range(count[0])]
        return [it for it in devices if self.ffi.string(self.api.EpDevice_EpName(it)).decode() == provider]

    def session(self, model: bytes, device: Any, options: dict[str, str] | None = None) -> Any:
        ffi, given = self.ffi, options or {}
        settings = self.out(self.api.CreateSessionOptions, "OrtSessionOptions *")
        keys = [self.text(key) for key in given]
        values = [self.text(value) for value in given.values()]
        self.check_status(
            self.api.SessionOptionsAppendExecutionProvider_V2(
                settings,
                self.env,
                ffi.new("const OrtEpDevice *[]", [device]),
                1,
                ffi.new("const char *[]", keys),
                ffi.new("const char *[]", values),
                len(given),
            )
        )
        try:
            return self.out(
                self.api.CreateSessionFromArray, "OrtSession *", self.env, ffi.from_buffer(model), len(model), settings
            )
        finally:
            self.api.ReleaseSessionOptions(settings)

    def run(
        self, session: Any, x: np.ndarray, name: str = "x", output: str = "y", profile: str | None = None
    ) -> np.ndarray:
        """Runs a model with one f32 input and one output of its shape; `profile` starts the name of a profile of it."""
        ffi, api = self.ffi, self.api
        info = self.out(api.CreateCpuMemoryInfo, "OrtMemoryInfo *", 1, 0)
        dims = ffi.new("int64_t[]", x.shape)
        value = self.out(
            api.CreateTensorWithDataAsOrtValue, "OrtValue *", info, ffi.from_buffer(x), x.nbytes, dims, x.ndim, 1
        )
        result = ffi.new("OrtValue **")
        options = self.out(api.CreateRunOptions, "OrtRunOptions *")
        try:
            if profile is not None:
                self.check_status(api.RunOptionsEnableProfiling(options, self.text(profile)))
            self.check_status(
                api.Run(
                    session,
                    options,
                    ffi.new("const char *[]", [one := self.text(name)]),
                    ffi.new("const OrtValue *[]", [value]),
                    1,
                    ffi.new("const char *[]", [two := self.text(output)]),
                    1,
                    result,
                )
            )
            del one, two
            data = self.out(api.GetTensorMutableData, "void *", result[0])
            got = np.frombuffer(ffi.buffer(data, x.nbytes), np.float32).reshape(x.shape).copy()
        finally:
            api.ReleaseRunOptions(options)
            api.ReleaseValue(value)
            if result[0]:
                api.ReleaseValue(result[0])
            api.ReleaseMemoryInfo(info)
        return got
