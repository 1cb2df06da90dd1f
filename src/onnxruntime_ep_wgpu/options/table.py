"""The table of provider options: key, valid values, default and effect. `types.py` has the same as types for editors."""

from __future__ import annotations

from .kinds import Option, address, cache, choice, flag, foreign, lines, lines_text, number, path_text

_UINT32 = 2**32 - 1

OPTIONS: dict[str, Option] = {
    option.key: option
    for option in (
        choice(
            "preferredLayout",
            ("NCHW", "NHWC"),
            "NHWC",
            "Layout that convolutions calculate in.",
            "results do not depend on it: kernels read and write through strides, so no layout is chosen for a whole graph"
            " and no Transpose is inserted; each kernel uses its operands in their existing layout",
            inert=("NCHW",),
        ),
        flag(
            "enableGraphCapture",
            "0",
            "Record the GPU work of a run and replay it in later runs.",
            "one recording per gpu_graph_id and set of bound tensors; refused if a node runs elsewhere",
            needs_original=True,
        ),
        flag(
            "enableInt64",
            "1",
            "64-bit integers on the GPU.",
            "they are exact with 0 and 1, natively or as pairs of 32-bit words, and no node moves to the CPU because of them",
        ),
        Option(
            "forceCpuNodeNames",
            "node names, one per line",
            "",
            "Nodes that stay on the CPU.",
            lines,
            "the named nodes stay on the CPU, with the bodies of control-flow nodes and the expansions of functions; a name"
            " that no node has is an error",
            text=lines_text,
            needs_original=True,
        ),
        choice(
            "powerPreference",
            ("high-performance", "low-power"),
            "high-performance",
            "Which adapter to use when a session is given several devices.",
            "picks among the devices passed to the session; without it the first is used",
        ),
        choice(
            "validationMode",
            ("disabled", "wgpuOnly", "basic", "full"),
            "basic",
            "How much is checked.",
            "disabled, wgpuOnly: wgpu's own validation, which cannot be turned off; basic: also sizes and aliasing when"
            " buffers are bound; full: also error scopes, kernels with bounds checks and loop"
            " guards, and an error that names node and place when a kernel makes NaN or infinity from finite inputs, or when"
            " an index out of a tensor lies outside its axis, which the other modes clamp or skip (runs one dispatch at a"
            " time, slowly)",
        ),
        number(
            "deviceId",
            0,
            2**31 - 1,
            "0",
            "Which device of the adapter: 0 is the shared default, and each other number is a separate device.",
            "sessions with equal numbers share a device and its caches; see [memory.md](memory.md)",
        ),
        address("webgpuInstance", "The WebGPU instance of webgpuDevice."),
        address("webgpuDevice", "The device to use: one that this process made through wgpu-py."),
        foreign("dawnProcTable", "the address of Dawn's function table", "has no such table"),
        choice(
            "dawnBackendType",
            ("D3D12", "Vulkan"),
            "",
            "Graphics API; empty is the adapter's best.",
            "the adapter is used through this API; an error if that is impossible",
        ),
        choice(
            "webgpuLibrary",
            ("auto", "wgpu-native", "dawn"),
            "auto",
            "The WebGPU library; without the option, WGPU_EP_LIBRARY in the environment selects it.",
            "wgpu-native is always available; dawn is the package wgpudawn, and if it is missing or its driver refuses it, the"
            " error names the command to run; auto uses dawn for models of f16 or 8 bits if it is installed and the adapter"
            " has matrix units, else wgpu-native ([webgpu.md](webgpu.md))",
        ),
        flag(
            "enablePIXCapture",
            "0",
            "Every run of a group is a capture for PIX, RenderDoc or Xcode.",
            "captures with the debugger that started this process; an error without one",
            needs_original=True,
        ),
        flag(
            "enableRobustness",
            "0",
            "Kernels test every index against the size of its buffer.",
            "kernels are compiled with bounds checks and loop guards, as with validationMode full; without them, kernels"
            " clamp only indices that come from tensors. Compiled models that another user made have the checks unless 0 is"
            " given",
        ),
        flag(
            "preserveDevice",
            "0",
            "Keep the device when its last session ends.",
            "1 keeps it; 0 closes it with the last session or the last tensor on it, whichever ends later",
        ),
        number(
            "sessionBufferPoolGenerations",
            0,
            _UINT32,
            "1",
            "Runs after which an unused buffer is released.",
            "counted per group of nodes; a buffer for intermediate values that so many runs did not use returns to the"
            " storage buffer cache; runs that C code repeats count with the one before; with 0, all return after each run",
        ),
        number(
            "multiRotaryCacheConcatOffset",
            0,
            _UINT32,
            "0",
            "Where the second rotary cache starts.",
            "RotaryEmbedding and GroupQueryAttention: a longer sequence reads cosines and sines this many rows further on",
        ),
        choice(
            "kvCacheQuantizationBits",
            ("0", "4", "8"),
            "0",
            "Bits per element of a quantised KV cache; 0 is none.",
            "none yet: a cache has the bits that the model's nodes specify (k_quant_type, v_quant_type)",
        ),
        number(
            "maxStorageBufferBindingSize",
            128 << 20,
            2**63 - 1,
            "0",
            "Largest binding in bytes; 0 is the adapter's.",
            "a larger tensor is bound in several ranges, up to the size of a buffer; more than the adapter allows is an"
            " error",
            also=0,
        ),
        number(
            "maxNumPendingDispatches",
            1,
            4096,
            "4096",
            "Dispatches per submission.",
            "longer runs are encoded completely, then submitted in parts; a replayed run has its own parts of at most this"
            " length, so that the GPU starts early",
        ),
        cache(
            "storageBufferCacheMode",
            "bucket",
            "storage buffers",
            "tensors and intermediate values; disabled: memory is freed when a buffer is released, lazyRelease: when the"
            " next run ends, simple: kept for a buffer of equal size, bucket: of a similar size, since sizes are rounded up by"
            " an eighth at most (or 255 bytes). Up to 256 MiB are kept, and no buffer that runs have not used for long",
        ),
        cache("uniformBufferCacheMode", "simple", "uniform buffers", "sizes that kernels read; modes as above"),
        cache("queryResolveBufferCacheMode", "disabled", "query buffers", "timestamps of kernels; modes as above"),
        cache(
            "defaultBufferCacheMode",
            "bucket",
            "other buffers",
            "staging buffers for results; modes as above. Allocating one each time, as disabled does, takes a quarter or"
            " more of the time of a small download",
        ),
        choice(
            "weightLoadAcceleration",
            ("off", "preferred", "required"),
            "off",
            "Loading weights without the CPU.",
            "preferred is the same as off, because WebGPU accesses GPU memory only through the host; required is refused",
            inert=("preferred",),
            refused={"required": "WebGPU accesses GPU memory only through the host, so weights cannot bypass it"},
        ),
        flag(
            "enableMatmulFp32Accumulation",
            "1",
            "Sum in f32 in matrix products of f16.",
            "sums are f32 with 0 too: f16 is only a storage type here, and all kernels calculate in f32",
            inert=("0",),
        ),
        flag(
            "enableInt8Activations",
            "1",
            "Round activations to 8 bits where a model allows it.",
            "MatMulNBits with accuracy_level 4, on GPUs with an instruction for dot products of bytes: up to 32 neighbours of a"
            " row share a scale, and sums are f32; with 0, and on other GPUs, activations are not rounded (docs/numbers.md)",
        ),
        number(
            "adapterIndex",
            0,
            2**31 - 1,
            "0",
            "Which adapter.",
            "`session()` uses this adapter if no device is passed; an error if another device is passed",
        ),
        number(
            "maxStorageBuffersPerShaderStage",
            1,
            1024,
            "8",
            "Storage buffers that a kernel may bind.",
            "kernels are compiled for this many, or the adapter's own limit where that is lower",
        ),
        Option(
            "tuningTable",
            "the path of a file",
            "",
            "Choices of algorithms, tiles and grids for the adapter.",
            str,
            "for each kernel, they take precedence over the shipped choices (docs/tuning.md); an error if the file is not a"
            " table, or was measured on another adapter",
            text=path_text,
        ),
    )
}
