"""From a sequence to one vector: input layer, SD-TCM blocks, last norm, pool. The networks put a head on it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..nn import SDTCM, BatchNorm
from ..nn.counts import Count, CountError, count_dense, count_norm, count_pool, require_counting
from ..nn.folded import Array, Folded, FoldError, Layer, fold_method, norm_affine, to_array
from ..nn.linear import InputLinear
from ..nn.neuron import zero_state
from ..ops.checks import require_count
from .config import EncoderConfig
from .network import Network, require_tokens, require_values, require_vocabulary
from .sequences import Sequences, StreamState, advance, arrange, require_state, start


class Encoder(nn.Module):
    """[B, T, inputs] values or [B, T] tokens to [B, D], or to the stream itself if the pool is "none".

    The input layer is dense: a Linear on values, or an Embedding of tokens.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        if config.inputs is not None:
            self.input: InputLinear | nn.Embedding = InputLinear(config.inputs, config.features)
        elif config.vocabulary is not None:
            self.input = nn.Embedding(config.vocabulary, config.features)
        if config.standardise and config.inputs is not None:
            self.register_buffer("input_mean", torch.zeros(config.inputs))
            self.register_buffer("input_scale", torch.ones(config.inputs))
        self.blocks = nn.ModuleList(build_block(config) for _ in range(config.depth))
        self.norm = BatchNorm(config.features) if config.has_last_norm else None

    def forward(
        self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None, owner: str = "Encoder"
    ) -> tuple[Tensor, Sequences]:
        """The pooled vectors, and the layout of the batch. `owner` is the name that errors about the input carry."""
        self.require_input(owner, x, "B, T")
        x, sequences = arrange(owner, x, lengths, cu_seqlens)
        stream = self._input(owner, x)
        for number, block in enumerate(self.blocks):
            output = block(stream, cu_seqlens=sequences.cu_seqlens)
            if not isinstance(output, Tensor) or output.shape != stream.shape:
                got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
                name, shape = type(block).__name__, list(stream.shape)
                raise ValueError(f"{owner}: blocks.{number}, a {name}, must return a stream {shape}, got {got}")
            stream = output
        if self.norm is not None and self.config.pool == "mean":
            return self.norm.pooled(stream, sequences.cu_seqlens), sequences
        if self.norm is not None:
            stream = self.norm(stream)
        return sequences.pool(stream, self.config.pool, self.config.pool_steps), sequences

    def init_state(self, batch: int, *, owner: str = "Encoder") -> StreamState:
        require_count(f"{owner}.init_state", "batch", batch)
        layers = tuple(zero_state(block, batch) for block in self._causal_blocks(f"{owner}.init_state"))
        return start(layers, self.config.pool, batch, self.config.features, self.input.weight.device)

    def step(self, x: Tensor, state: StreamState | None, *, owner: str = "Encoder") -> tuple[Tensor, StreamState]:
        """One time step: the pool of all steps so far, and the state after it."""
        op = f"{owner}.step"
        self.require_input(op, x, "B")
        blocks = self._causal_blocks(op)
        if self.norm is not None:
            self.norm.require_running(op)
        if state is None:
            state = self.init_state(x.shape[0], owner=owner)
        require_state(op, state, len(blocks))
        stream, layers = self._input(op, x), []
        for block, layer in zip(blocks, state.layers, strict=True):
            stream, last = block.step(stream, layer)
            layers.append(last)
        if self.norm is not None:
            stream = self.norm(stream)
        return advance(tuple(layers), state, stream, self.config.pool_steps)

    @torch.no_grad()
    def standardise(self, mean: Array, deviation: Array) -> None:
        """Set the mean and standard deviation by which input channels are standardised, each [inputs].

        A constant channel is only shifted. `data.statistics` computes both for a split.

        Raises:
            RuntimeError: The config has `standardise=False`.
        """
        if not self.config.standardise:
            raise RuntimeError("Encoder.standardise: the config must have standardise=True")
        mean, deviation = np.asarray(mean, np.float64), np.asarray(deviation, np.float64)
        # A deviation below the rounding of the values themselves means a constant channel.
        constant = deviation <= 1e-6 * np.abs(mean) + 1e-30
        scale = 1 / np.where(constant, 1.0, deviation)
        for name, values in (("input_mean", mean), ("input_scale", scale)):
            self.get_buffer(name).copy_(torch.from_numpy(np.ascontiguousarray(values)))

    def require_input(self, owner: str, x: Tensor, dims: str) -> None:
        """Check the shape and type of an input with the leading dimensions `dims`."""
        if self.config.inputs is not None:
            require_values(owner, x, dims, self.config.inputs, self.input.weight)
        else:
            require_tokens(owner, x, dims)

    def _input(self, owner: str, x: Tensor) -> Tensor:
        if self.config.vocabulary is not None:
            # Checked after packing: padding may hold any value.
            require_vocabulary(owner, x, self.config.vocabulary)
            x = x.long()
        elif self.config.standardise:
            x = (x - self.get_buffer("input_mean")) * self.get_buffer("input_scale")
        return self.input(x)

    def _causal_blocks(self, op: str) -> list[Any]:
        if self.config.bidirectional and self.config.block is None:
            raise RuntimeError(f"{op}: a bidirectional network needs whole sequences and cannot be streamed")
        for number, block in enumerate(self.blocks):
            if not callable(getattr(block, "step", None)):
                raise RuntimeError(f"{op}: blocks.{number} cannot be streamed, {type(block).__name__} has no `step`")
        return list(self.blocks)

    def fold(self, floor: float, head: Array | None = None, bias: Array | None = None) -> Folded:
        """The encoder as arrays, with a head [classes, D] and its bias [classes]; without them, scores are features.

        See `resofire.nn.folded`.
        """
        features = self.config.features
        head = np.eye(features) if head is None else head
        bias = np.zeros(len(head)) if bias is None else bias
        weight = to_array(self.input.weight)
        tokens = self.config.vocabulary is not None
        c = np.ones(features)
        d = np.zeros(features) if tokens else to_array(self.input.get_parameter("bias"))
        if self.config.standardise:
            weight = weight * to_array(self.get_buffer("input_scale"))
        layers: list[Layer] = []
        for block in self.blocks:
            added, c, d = _folded(block, fold_method(block)(c, d, floor), features)
            layers += added
        if self.norm is not None:
            gain, offset = norm_affine(self.norm)
            c, d = gain * c, gain * d + offset
        return Folded(
            table=np.ascontiguousarray(weight if tokens else weight.T),
            tokens=tokens,
            layers=tuple(layers),
            pool=self.config.pool,
            pool_steps=self.config.pool_steps,
            head=(head * c).T.copy(),
            bias=bias + head @ d,
            origin=to_array(self.get_buffer("input_mean")) if self.config.standardise else None,
        )

    def count(self, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count the blocks; `count_input` and `count_readout` count what comes before and after them."""
        parts = []
        for number, block in enumerate(self.blocks):
            name = f"encoder.blocks.{number}"
            counted = require_counting(block, name).count(name, steps, rates, fold_norm=fold_norm)
            if not isinstance(counted, list):
                kind = type(block).__name__
                raise CountError(f"count_ops: {kind}.count must return a list of Count, got {type(counted).__name__}")
            parts += counted
        return parts

    def count_input(self, steps: float) -> Count:
        """Count the input layer; a standardised input costs nothing, it is part of the weights."""
        return count_dense(self.input, "encoder.input", "encoder", steps)

    def count_readout(self, steps: float, vectors: int, *, fold_norm: bool = False) -> list[Count]:
        """Count the pool and the last norm, for `vectors` sequences per inference."""
        features, pool = self.config.features, self.config.pool
        parts = count_pool(pool, features, steps, vectors)
        if self.norm is not None and not fold_norm:
            # The pool leaves one vector per sequence, and the norm is applied to that.
            parts.append(count_norm("encoder.norm", features, steps if pool == "none" else vectors))
        return parts


class EncoderNetwork(Network):
    """An encoder and a head on its vectors."""

    config: EncoderConfig

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each block."""
        return (self.config.features,) * self.config.depth

    def count(self, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count all parts, see `resofire.measure.count_ops`."""
        before, *after = self.count_frame(steps, fold_norm=fold_norm)
        return [before, *self.encoder.count(steps, rates, fold_norm=fold_norm), *after]

    def count_frame(self, steps: float, *, fold_norm: bool = False) -> list[Count]:
        """Count everything but the blocks: input layer, pool, last norm, head. A peer of equal size has the same."""
        readout = self.encoder.count_readout(steps, 2 if self.config.pairs else 1, fold_norm=fold_norm)
        return [self.encoder.count_input(steps), *readout, *self.count_head(steps)]

    def count_head(self, steps: float) -> list[Count]:
        """Count the head."""
        raise NotImplementedError(f"{type(self).__name__} does not define count_head")


def _folded(block: nn.Module, result: Any, features: int) -> tuple[list[Layer], Array, Array]:
    """Check what a block's `fold` returned: (layers, c, d)."""
    match result:
        case (list() as layers, np.ndarray() as c, np.ndarray() as d):
            if c.shape == d.shape == (features,) and all(isinstance(each, Layer) for each in layers):
                return layers, c, d
    form = f"(list of Layer, c [{features}], d [{features}])"
    raise FoldError(block, f"{type(block).__name__}.fold must return {form}")


def build_block(config: EncoderConfig) -> nn.Module:
    """One block of an encoder: SD-TCM, or the config's own."""
    if config.block is None:
        return SDTCM(
            config.features, neuron=config.neuron, bidirectional=config.bidirectional, norm=config.norm,
            prenorm=config.prenorm, dropout=config.dropout, amplitude=config.amplitude,
            spatial_threshold=config.spatial_threshold, surrogate=config.spatial_surrogate, backend=config.backend,
            positional_bias=config.positional_bias, spatial=config.spatial,
        )  # fmt: skip
    block = config.block.build(config.features)
    if not isinstance(block, nn.Module):
        raise TypeError(f"Encoder: block must build a module, got {type(block).__name__}")
    return block
