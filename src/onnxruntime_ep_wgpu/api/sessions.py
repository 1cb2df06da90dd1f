"""Creates sessions, and defines their behaviour.

In: a model, a device, and options as Python values. Out: an `onnxruntime.InferenceSession` on that device. Invariants:
`session()` and the session's runs raise the provider's errors with their own types, where plain InferenceSession falls back to
the CPU. A model with no node on this provider is an error too, unless the caller allows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from ..device import adapters
from ..errors import DeviceError, FreeSizeError, OptionError, UnsupportedError, WgpuEpError, cut
from ..live import WeakAttributes
from ..names import VENDOR
from ..options import as_text, parse
from ..options.types import ProviderOptions
from ..plugin.factory import ADAPTER_KEY
from ..plugin.preparation import SessionPreparation
from ..runtime.making import Making
from ..runtime.progress import Progress
from .arguments import (
    check_options,
    explain_types,
    feeds_argument,
    model_argument,
    settings_argument,
    sizes_argument,
    whole_number,
)
from .binding import Binding
from .devices import devices
from .free_dimensions import Fixed, check_fixed, fix, hindered, in_python, keys_in
from .kept import description_of, keep, kept_models
from .nowhere import without_provider
from .reports import remember, state_of
from .unwritten import unwritten

if TYPE_CHECKING:
    from ..device import Adapter
    from ..plugin.context.kept_model import KeptModel
    from ..plugin.watch import Watch
    from .ahead import SessionAhead

# The device and the free dimensions that earlier sessions added to each SessionOptions.
_added: WeakAttributes[Any, tuple[Any, dict[str, int]]] = WeakAttributes()


class Session(ort.InferenceSession):  # type: ignore[misc,unused-ignore]
    """ONNX Runtime's session, except that errors of the provider keep their types, such as DeviceLostError or
    KeyboardInterrupt.

    ONNX Runtime itself raises an error with their text only."""

    def run(self, *arguments: Any, **named: Any) -> Any:
        feeds = arguments[1] if len(arguments) > 1 else named.get("input_feed", {})
        if not isinstance(feeds, Mapping):
            feeds_argument(feeds, self)
        with RaisingProviderErrors(feeds=feeds) as watch, watch.active:
            try:
                return super().run(*arguments, **named)
            except Exception as error:
                explain_types(error, self, feeds)
                raise

    def run_with_ort_values(self, *arguments: Any, **named: Any) -> Any:
        feeds = arguments[1] if len(arguments) > 1 else named.get("input_dict_ort_values", {})
        with RaisingProviderErrors() as watch, watch.active:
            try:
                return super().run_with_ort_values(*arguments, **named)
            except Exception as error:
                explain_types(error, self, feeds)
                raise

    def io_binding(self) -> ort.IOBinding:
        """Returns ONNX Runtime's IOBinding or, if several groups run the model, a `Binding` that is checked before a run."""
        pairs = state_of(self).deciding.crossings()
        return Binding(self, pairs) if pairs else super().io_binding()

    def run_with_iobinding(self, *arguments: Any, **named: Any) -> None:
        binding = arguments[0] if arguments else named.get("iobinding")
        if isinstance(binding, Binding):
            binding.check()
        with RaisingProviderErrors() as watch, watch.active:
            try:
                super().run_with_iobinding(*arguments, **named)
            except Exception as error:
                explain_types(error, self)
                raise


class RaisingProviderErrors:
    """A `with` that raises the provider's first error on this thread, instead of ONNX Runtime's text about it.

    It is used around sessions and tensors. `source` is the model of a new session, `options` are its provider options, and
    `feeds` are the inputs of a run."""

    def __init__(
        self,
        source: str | bytes = "",
        options: Mapping[str, str] | None = None,
        feeds: Mapping[str, Any] | None = None,
        making: Making | None = None,
    ) -> None:
        from ..plugin.watch import watching

        self._watching = watching(source, options, feeds, making)

    def __enter__(self) -> Watch:
        self._watch = self._watching.__enter__()
        return self._watch

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        watch = self._watch
        self._watching.__exit__()
        # ONNX Runtime ignores errors of some callbacks. It must not swallow an interrupt, or an exception that escaped from a
        # call that cannot fail, such as one of a signal handler.
        interrupted = any(not isinstance(it, Exception) for it in watch.errors)
        if error is None and not interrupted and not watch.deferred:
            return
        reason = watch.reason()
        try:
            if error is None and interrupted:
                raise KeyboardInterrupt
            if reason is not None and (error is None or isinstance(error, Exception)):
                raise reason from error
        finally:
            # The error's traceback refers to this frame. A reference back to the error would be a cycle, which would keep the
            # session and its GPU memory alive until the next garbage collection.
            del reason, error


def make(
    model: str | os.PathLike[str] | bytes,
    device: Any,
    wgpu_device: Any,
    sess_options: Any,
    free_dimensions: Mapping[str, int] | None,
    allow_cpu_only: bool,
    on_progress: Callable[[Progress], None] | None,
    options: ProviderOptions,
    ahead: SessionAhead | None,
) -> ort.InferenceSession:
    """Creates a session. See `session.session`. `ahead`: what was done before, which may be for another session."""
    check_options(options)
    making = Making(on_progress)
    path_or_bytes, settings = model_argument(model), settings_argument(sess_options)
    sizes = sizes_argument(free_dimensions)
    given = {key: as_text(key, value) for key, value in options.items()}
    if wgpu_device is not None:
        from ..device.wgpu_py import adapter_of
        from .sharing import device_options

        given |= device_options(wgpu_device)
        device = adapter_of(wgpu_device).index if device is None else device
    checked = parse(given)
    if device is None and "adapterIndex" in given:
        from ..plugin.device_choice import numbered

        device = numbered(checked["adapterIndex"]).index
    chosen = _pick(device)
    fixed = _add_to(settings, path_or_bytes, chosen, sizes)
    making.step(0, 0)
    adapter = adapters()[int(chosen.ep_metadata[ADAPTER_KEY])]
    if ahead is not None and not ahead.is_for(adapter, given, sizes):
        ahead = None
    kept = ahead.kept if ahead is not None else kept_models(fixed.model, adapter, given, sizes, sess_options)
    opened = ahead.opened if ahead is not None else None if kept is None else kept.find()
    if kept is not None and kept.refused:
        kept = None
    if opened is not None:
        preparation = SessionPreparation(adapter, given, opened.path, opened) if ahead is None else ahead.preparation
        try:
            with preparation if ahead is None else nullcontext():
                return _from_compiled_model(opened, chosen, given, making, preparation)
        except Exception:
            if making.stopped:
                raise
        making = Making(on_progress, making.begun)
    with (
        RaisingProviderErrors(fixed.model, given, making=making) as watch,
        watch.active,
        _prepared_ahead(
            adapter, given, fixed.model, sess_options, kept is not None and opened is None
        ) as watch.preparation,
    ):
        watch.keeps_model = kept is not None
        try:
            made = Session(fixed.model, settings, enable_fallback=0)
        except Exception as error:
            from .external_data import data_problem

            maker = watch.providers[-1] if watch.providers else None
            writes = maker is not None and maker.state is not None and maker.state.ep_contexts.enabled
            if reason := without_provider(error, maker) or unwritten(error, writes) or data_problem(fixed.model):
                raise reason from error
            raise
        provider = watch.providers[-1] if watch.providers else None
        if provider is not None and provider.state is not None:
            # ONNX Runtime below 1.27 does not report when all graphs are assigned, or which tensors are copied.
            provider.state.deciding.complete()
            provider.state.copy_guard.check_copies()
        making.end()
    if provider is None or provider.state is None or provider.refusal is not None:
        # ONNX Runtime below 1.27 does not call the provider for a graph without nodes.
        raise watch.reason() or WgpuEpError("ONNX Runtime made a session without this provider")
    # ONNX Runtime before 1.26 does not support captures, and may not have requested any compilation.
    provider.state.check_captures()
    check_fixed(fixed.sizes, made)
    assigned = provider.state.assignment
    if not allow_cpu_only and (nothing := assigned.describe_none_here()) and not assigned.all_forced():
        way = "session(..., allow_cpu_only=True) creates the session anyway"
        if (free := keys_in(made)) and hindered(it.reason for it in assigned.placements()):
            raise FreeSizeError(f"{nothing} ({way})", free, in_python(free, "free_dimensions"))
        raise UnsupportedError(f"{nothing} ({way})")
    remember(made, provider.state)
    if kept is not None:
        keep(kept, made, provider.state)
    return made


def _from_compiled_model(
    kept: KeptModel, device: Any, given: Mapping[str, str], making: Making, preparation: SessionPreparation
) -> ort.InferenceSession:
    """Creates a session of a compiled model from the cache instead of the model. Raises if the two differ in any way."""
    settings = ort.SessionOptions()
    settings.add_provider_for_devices([device], {})
    with RaisingProviderErrors(kept.path, given, making=making) as watch, watch.active:
        watch.preparation, watch.opened = preparation, kept
        made = Session(kept.model, settings, enable_fallback=0)
        (provider,) = watch.providers
        if provider.state is not None:
            provider.state.deciding.complete()
        making.end()
    refused = provider.state is None or provider.refusal is not None
    if refused or description_of(made) != kept.description or not kept.is_current():
        raise WgpuEpError(f"the cached compiled model of {kept.path} is not the same")
    made._model_path, made._model_bytes = kept.path, None  # ONNX Runtime re-creates the session from these
    remember(made, provider.state)
    return made


def _prepared_ahead(
    adapter: Adapter, given: Mapping[str, str], model: str | bytes, sess_options: Any, new: bool
) -> AbstractContextManager[Any]:
    """Returns a context that prepares the session while ONNX Runtime reads the model. `new`: the cache knows nothing of it.

    It does nothing if settings other than `given` matter, or if the caller owns the device."""
    if sess_options is not None or "webgpuDevice" in given or "webgpuInstance" in given:
        return nullcontext()
    return SessionPreparation(adapter, given, model, compiles=new)


def adapter_index(device: Any) -> int:
    """Returns the adapter's index, as in the option adapterIndex, of a `device` argument of `session()`. Raises DeviceError."""
    return int(_pick(device).ep_metadata[ADAPTER_KEY])


def _add_to(settings: Any, model: str | bytes, device: Any, sizes: Mapping[str, int]) -> Fixed:
    """Adds a device and fixed dimensions to SessionOptions. Returns the model to open, and the fixed sizes.

    ONNX Runtime can neither copy SessionOptions nor remove entries, and fails if a provider is added twice. Therefore the
    additions of earlier sessions are recorded, and reused if they are the same. Raises OptionError if they differ."""
    before = _added.get(settings)
    if before is None:
        fixed = fix(model, sizes, settings)
        settings.add_provider_for_devices([device], {})
        _added.set(settings, (device, dict(sizes)))
        return fixed
    for what, was, now in (
        ("the device", before[0].ep_metadata["name"], device.ep_metadata["name"]),
        ("the adapter", before[0].ep_metadata["adapter"], device.ep_metadata["adapter"]),
        ("free_dimensions", before[1], dict(sizes)),
    ):
        if was != now:
            raise OptionError(
                f"sess_options: {what} {was!r} of an earlier session is in this object and cannot be removed out for {now!r};"
                " give this session SessionOptions of its own"
            )
    return fix(model, sizes, settings, again=True)


def _pick(device: Any) -> Any:
    found = devices()
    names = [entry.ep_metadata["name"] for entry in found]
    shown = ", ".join(f"{place}: {name}" for place, name in enumerate(names))
    if device is None:
        return found[0]
    if (place := whole_number(device)) is not None:
        if not 0 <= place < len(found):
            raise DeviceError(f"there is no device {place}; there are {shown}")
        return found[place]
    if isinstance(device, str):
        for entry, name in zip(found, names, strict=True):
            if (device and device.lower() in name.lower()) or (
                device == "software" and "software" in entry.ep_metadata
            ):
                return entry
        raise DeviceError(f"there is no device {cut(device)}; there are {shown}")
    if getattr(device, "ep_name", None) is None:
        raise OptionError(f"device: {cut(device)} is not an OrtEpDevice, a number or a name; there are {shown}")
    if device.ep_vendor != VENDOR:
        raise OptionError(
            f"device: it belongs to {device.ep_name} by {device.ep_vendor}, not to this provider; there are {shown}"
        )
    return device
