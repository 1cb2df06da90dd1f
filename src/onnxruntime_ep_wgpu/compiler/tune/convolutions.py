"""Choices for convolutions that read from the image directly. All other convolutions are products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...records import dataclass
from ..dims import Dim, ceildiv
from ..ir import Variant
from .base import Parameters, Workgroups, constants


@dataclass(frozen=True)
class ConvolutionShape:
    """`images` (batch times groups) of `outputs` channels with `pixels` results each."""

    images: Dim
    outputs: int
    pixels: Dim


@dataclass(frozen=True)
class ConvolutionForm(Parameters):
    """A kernel that reads a convolution from the image. Each invocation computes `pixels` results of some channels.

    `in_fours`: it loads the weights of four channels at a time.
    """

    about: ClassVar[Mapping[str, str]] = {"pixels": "of a result"}
    in_fours: ClassVar[bool] = False
    pixels: int

    @property
    def output_channels(self) -> int:
        """The output channels of an invocation."""
        raise NotImplementedError

    def variant(self, shape: ConvolutionShape, guard: Dim) -> Variant:
        """Returns the kernel for a convolution of this shape."""
        tiles = ceildiv(shape.pixels, self.invocations * self.pixels)
        channel_tiles = -(-shape.outputs // self.output_channels)
        chosen = constants(PIXELS=self.pixels, CHANNELS=self.output_channels, channel_tiles=channel_tiles)
        return Variant(shape.images * channel_tiles * tiles, self.invocations, guard, chosen, (("tiles", tiles),))


@dataclass(frozen=True)
class DirectConvolution(ConvolutionForm):
    """A convolution read from the image, `pixels` results of 8 channels per invocation; on software adapters."""

    kernel: ClassVar[str] = "conv_direct"
    in_fours: ClassVar[bool] = True

    @property
    def output_channels(self) -> int:
        return 8

    @property
    def invocations(self) -> int:
        return 8


@dataclass(frozen=True)
class RegisterConvolution(ConvolutionForm):
    """A convolution read from the image, one element at a time. Each of `lanes` invocations accumulates `pixels` results of
    `channels` channels in variables; on SwiftShader."""

    kernel: ClassVar[str] = "conv_registers"
    channels: int
    lanes: int

    @property
    def output_channels(self) -> int:
        return self.channels

    @property
    def invocations(self) -> int:
        return self.lanes


@dataclass(frozen=True)
class Depthwise(Workgroups):
    """Depthwise convolutions by workgroups of `workgroup` invocations. With `shared` 1, each workgroup stays in one plane and
    loads its weights once; otherwise `shared` is 0."""

    kernel: ClassVar[str] = "depthwise"
    allowed: ClassVar = {"shared": (0, 1)}
    others: ClassVar = ((128, 0), (256, 0), (64, 1))
    shared: int


@dataclass(frozen=True)
class DepthwiseLast(Workgroups):
    """Depthwise convolutions of channels-last images by workgroups of `workgroup` invocations. Each invocation computes four
    channels of some positions."""

    kernel: ClassVar[str] = "depthwise_last"
    others: ClassVar = ((32,), (128,), (256,))


@dataclass(frozen=True)
class GroupedLast(Workgroups):
    """Grouped convolutions of channels-last images by workgroups of `workgroup` invocations. Each invocation computes four
    channels of at most `columns` positions, or fewer with strides."""

    kernel: ClassVar[str] = "grouped_last"
    allowed: ClassVar = {"columns": range(1, 17)}
    others: ClassVar = ((64, 8), (64, 2))
    columns: int

    def columns_of(self, width: Dim, stride: int) -> int:
        """Returns the positions per invocation in rows of `width`. A known width is shared evenly."""
        most = max(1, self.columns // stride)
        return -(-width // -(-width // most)) if isinstance(width, int) and width > 0 else most


@dataclass(frozen=True)
class ChannelsLast(Parameters):
    """Which convolutions produce channels-last images. `convolutions` is 0 for none. It is 1 for those that read each other's
    images at least four times as often as others do. It is 2 for all that have one group, or one channel per group."""

    kernel: ClassVar[str] = "channels_last"
    about: ClassVar[Mapping[str, str]] = {"discrete": "1 for a GPU with its own memory"}
    allowed: ClassVar = {"convolutions": (0, 1, 2)}
    others: ClassVar = ((0,),)
    convolutions: int
