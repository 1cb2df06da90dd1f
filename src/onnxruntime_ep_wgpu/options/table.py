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
            "results are equal: a compiled kernel reads and writes through strides, so that no layout of a whole graph is"
            " chosen and no Transpose is put in; each kernel takes its operands as they lie",
            inert=("NCHW",),
        ),
        flag(
            "enableGraphCapture",
            "0",
            "Record the GPU work of a run and replay it in later runs.",
            "one recording per gpu_graph_id and set of tensors in place; refused when a node runs elsewhere",
        ),
        flag(
            "enableInt64",
            "1",
            "64-bit integers on the GPU.",
            "with 0 and 1 alike they are exact, natively or as pairs of words, and no node moves to the CPU for them",
        ),
        Option(
            "forceCpuNodeNames",
            "node names, one per line",
            "",
            "Nodes that stay on the CPU.",
            lines,
            "the named nodes are not claimed, bodies of control flow and what a named function expands to included; a name"
            " that no node has is an error",
            text=lines_text,
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
            "Which device of the adapter: 0 is shared by default, the others are devices of their own.",
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
            "the adapter is used through this API; an error when that is not possible here",
        ),
        choice(
            "webgpuLibrary",
            ("auto", "wgpu-native", "dawn"),
            "auto",
            "The WebGPU library; without the option, WGPU_EP_LIBRARY in the environment says which.",
            "wgpu-native is always there; dawn is the package wgpudawn, and an error that says what to run where it is missing or"
            " its driver refuses it; auto takes dawn for models of f16 or 8 bits where it is installed and the adapter has"
            " matrix units, else wgpu-native ([webgpu.md](webgpu.md))",
        ),
        flag(
            "enablePIXCapture",
            "0",
            "Every run of a group is a capture for PIX, RenderDoc or Xcode.",
            "captures with the debugger that this process was started from; an error when there is none",
        ),
        flag(
            "enableRobustness",
            "0",
            "Kernels test every index against the size of its buffer.",
            "kernels are compiled with bounds checks and loop guards, as with validationMode full; without them kernels"
            " clamp only indices that come out of tensors. Kernels of compiled models that this user did not make are compiled"
            " so unless 0 is given",
        ),
        flag(
            "preserveDevice",
            "0",
            "Keep the device when its last session ends.",
            "1 keeps it; 0 lets it go with the last session or the last tensor on it, whichever ends later",
        ),
        number(
            "sessionBufferPoolGenerations",
            0,
            _UINT32,
            "1",
            "Runs after which an unused buffer is given back.",
            "counts per group of nodes; a buffer for intermediate values that so many runs did not use goes back to the"
            " storage buffer cache, 0 meaning all of them after each run",
        ),
        number(
            "multiRotaryCacheConcatOffset",
            0,
            _UINT32,
            "0",
            "Where the second rotary cache starts.",
            "RotaryEmbedding and GroupQueryAttention: a sequence that is longer reads cosines and sines so many rows further on",
        ),
        choice(
            "kvCacheQuantizationBits",
            ("0", "4", "8"),
            "0",
            "Bits per element of a quantised KV cache; 0 is none.",
            "none yet: a cache has the bits that the nodes of the model say (k_quant_type, v_quant_type)",
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
            "longer runs are submitted in parts, once they are encoded whole; a run that is repeated has parts of its own, "
            "none longer than this, so that the GPU begins early",
        ),
        cache(
            "storageBufferCacheMode",
            "bucket",
            "storage buffers",
            "tensors and intermediate values; disabled: memory is let go when a buffer is given back, lazyRelease: when the"
            " next run ends, simple: kept for a buffer of equal size, bucket: of a similar size, since sizes are rounded up by"
            " an eighth at most (or 255 bytes). Up to 256 MiB are kept, and nothing that no run has wanted for long",
        ),
        cache("uniformBufferCacheMode", "simple", "uniform buffers", "sizes that kernels read; modes as above"),
        cache("queryResolveBufferCacheMode", "disabled", "query buffers", "timestamps of kernels; modes as above"),
        cache(
            "defaultBufferCacheMode",
            "bucket",
            "other buffers",
            "those through which results reach the host; modes as above. Making one each time, as disabled does, costs a"
            " small download a quarter of its time or more",
        ),
        choice(
            "weightLoadAcceleration",
            ("off", "preferred", "required"),
            "off",
            "Loading weights past the CPU.",
            "preferred loads as off does, because WebGPU reaches GPU memory through the host alone; required is refused",
            inert=("preferred",),
            refused={
                "required": "WebGPU reaches GPU memory through the host alone, so weights cannot be loaded past it"
            },
        ),
        flag(
            "enableMatmulFp32Accumulation",
            "1",
            "Sum in f32 in matrix products of f16.",
            "sums are f32 with 0 too: f16 is a way to store numbers here, all kernels calculate in f32",
            inert=("0",),
        ),
        flag(
            "enableInt8Activations",
            "1",
            "Round activations to 8 bits where a model allows it.",
            "MatMulNBits with accuracy_level 4, on GPUs that multiply bytes in one instruction: up to 32 neighbours of a row have a"
            " scale of their own, sums are f32; with 0, and elsewhere, activations are multiplied as they are (docs/numbers.md)",
        ),
        flag(
            "enableF16Products",
            "0",
            "Multiply matrices of f32 by matrix units of f16.",
            "on adapters with such units, for products of known sizes from 64 on: each number is split into two of f16, and sums"
            " are f32 ([numbers.md](numbers.md#f32-products-by-units-of-f16)); webgpuLibrary=auto takes dawn for models of f32,"
            " too",
        ),
        number(
            "adapterIndex",
            0,
            2**31 - 1,
            "0",
            "Which adapter.",
            "`session()` picks this one when it is given no device; an error when the session was given another one",
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
            "of each kernel they are tried before those that the package has for it (docs/tuning.md); an error when"
            " the file is none, or was measured on another adapter",
            text=path_text,
        ),
    )
}
