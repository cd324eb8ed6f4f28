"""The Spike-Driven Token and Channel Mixer: the residual block that the networks are made of.

    S = TN(N(U))    R = U + D(W S + b)    S' = SN(R)    U⁺ = R + D(W' S' + b')         pre-norm
    S = TN(U)       R = U + D(W S + b)    S' = SN(R)    U⁺ = N(R + D(W' S' + b'))      post-norm

U is the real-valued stream [B, T, D]. TN is the temporal neuron, which mixes tokens (time steps); SN the spatial
neuron, which sees one time step; both Linears, which mix channels, see spikes only. N is a batch norm over all time
steps; as pre-norm it stands on the neuron's input alone, the shortcut carries U itself. D is a dropout of whole time
steps: one draw for each sequence and time step, for all its channels. Bidirectional: a second TN runs over each
sequence in reverse, S = [TN, TN reversed] has 2D channels and W is [D, 2D]. With spatial="identity" the block ends at
R: no spatial neuron and no second Linear, U⁺ = R or N(R), as in the authors' later networks for MNIST.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import ATan, Surrogate
from ..ops import sdtcm as block_operator
from ..ops.checks import require_choice, require_count, require_floating
from . import fused
from .config import NeuronConfig
from .counts import NUMBER, SPIKE, Count, count_norm, count_residual, count_synapses, count_temporal, rate_of
from .folded import Array, Layer, fold_method, norm_affine, to_array, weight_rows
from .folded import spatial as fold_spatial
from .linear import SpikeLinear
from .neuron import zero_state
from .norm import BatchNorm
from .prf import PRF, PRFConfig
from .spatial import SpatialNeuron

NORMS = ("batch", "none")
AMPLITUDES = ("none", "sn", "tn", "both")
BACKENDS = ("auto", "fused", "events", "reference")
SPATIAL = ("neuron", "identity")
# Shortest memory τ/Δ, in steps, of a PRF with a positional bias: faster ones are at rest too soon to encode the time.
BIASED_MEMORY = 100


class SDTCM(nn.Module):
    """One SD-TCM block; the equation is at the top of this file. Its state is its temporal neuron's.

    Args:
        features: Channels D of the stream.
        neuron: Temporal neuron: settings such as `PRFConfig()`, or any callable that takes the number of channels and
            makes a module with `scan(x, state, *, cu_seqlens, reverse)` and `step(x, state)`.
        bidirectional: Add a second temporal neuron that runs in reverse.
        norm: "batch" or "none".
        prenorm: Normalise before the temporal neuron (True) or after the block (False).
        dropout: Fraction of time steps that each D drops in training; the others are scaled up.
        amplitude: Which spikes have a trained size α (one number, kept as its logarithm, initially α = 1): those of the
            spatial neuron "sn", of the temporal neuron "tn", "both" or "none".
        spatial_threshold: Threshold of the spatial neuron; the temporal one has its own in `neuron`.
        surrogate: Surrogate gradient of the spatial neuron, likewise.
        backend: "fused" runs whole sequences through one operator, `resofire.ops.sdtcm`, or says why it cannot;
            "events" and "reference" compose the block from its parts, with Linears that run in this way
            (`resofire.ops.spike_linear`); "auto" is fused where possible.
        positional_bias: The initial biases of the pre-norm put the resting potential of each slow PRF at this distance
            from 0, so that its decay towards rest encodes the time. Slow are channels whose memory τ/Δ is at least
            BIASED_MEMORY steps. Exact without a reset; averaged over both neurons of a bidirectional block. 0: no bias,
            as in the paper. Better where inputs come in a random order
            (docs/experiments/positional-bias-slow-channels.md).
        gradient_dtype: "float32", or "bfloat16": the fused block then rounds the dense products that give the gradient
            of its spikes. Faster on a CPU with AVX512-BF16 or AMX, refused on others; without effect on a composed
            block and in float64.
        spatial: "neuron", or "identity": no spatial neuron and no second Linear. Of the amplitudes only "tn" is then
            left, and the block is always composed.
    """

    token_neuron: Any
    # Trained like the parameters of neurons.
    neuron_parameters = ("log_amplitude",)

    def __init__(
        self,
        features: int,
        *,
        neuron: NeuronConfig | Callable[[int], nn.Module] = PRFConfig(),  # noqa: B008 - frozen
        bidirectional: bool = False,
        norm: str = "batch",
        prenorm: bool = True,
        dropout: float = 0.0,
        amplitude: str = "sn",
        spatial_threshold: float = 0.5,
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
        backend: str = "auto",
        positional_bias: float = 0.0,
        gradient_dtype: str = "float32",
        spatial: str = "neuron",
    ) -> None:
        super().__init__()
        require_count("SDTCM", "features", features)
        for name, flag in (("bidirectional", bidirectional), ("prenorm", prenorm)):
            if not isinstance(flag, bool):
                raise ValueError(f"SDTCM: {name} must be True or False, got {flag!r}")
        require_choice("SDTCM", "norm", norm, NORMS)
        require_choice("SDTCM", "amplitude", amplitude, AMPLITUDES)
        require_choice("SDTCM", "backend", backend, BACKENDS)
        require_choice("SDTCM", "spatial", spatial, SPATIAL)
        require_share("SDTCM", "dropout", dropout)
        require_positional_bias("SDTCM", positional_bias, norm, prenorm)
        self.features, self.bidirectional, self.prenorm = features, bidirectional, prenorm
        self.dropout, self.backend, self.gradient_dtype = dropout, backend, gradient_dtype
        self.norm = BatchNorm(features) if norm == "batch" else None
        self.token_neuron = _temporal_neuron(neuron, features)
        self.token_neuron_reverse: Any = _temporal_neuron(neuron, features) if bidirectional else None
        self.log_amplitude = nn.Parameter(torch.zeros(())) if amplitude in ("tn", "both") else None
        linear_backend = "auto" if backend == "fused" else backend
        self.token_linear = SpikeLinear((1 + bidirectional) * features, features, backend=linear_backend)
        self.channel_neuron: SpatialNeuron | None = None
        self.channel_linear: SpikeLinear | None = None
        if spatial == "neuron":
            self.channel_neuron = SpatialNeuron(
                threshold=spatial_threshold, amplitude=amplitude in ("sn", "both"), surrogate=surrogate
            )
            self.channel_linear = SpikeLinear(features, features, backend=linear_backend)
        if positional_bias > 0:
            self._init_positional_bias(positional_bias)

    @property
    def gradient_dtype(self) -> str:
        return self._gradient_dtype

    @gradient_dtype.setter
    def gradient_dtype(self, value: str) -> None:
        block_operator.require_gradient_dtype("SDTCM", value)
        self._gradient_dtype = value

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """The stream after the block, for whole sequences [B, T, D], or packed [1, S, D] with `cu_seqlens`."""
        self._require_stream("SDTCM", u, "B, T")
        reason = self.why_not_fused(u)
        if reason is None:
            return fused.run(self, u, cu_seqlens)
        if self.backend == "fused":
            raise RuntimeError(f"SDTCM: backend 'fused' cannot run this call: {reason}")
        return self._composed(u, cu_seqlens)[0]

    def scan(self, u: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Any]:
        """Run a piece of each sequence.

        Args:
            u: The stream [B, T, D], or packed [1, S, D].
            state: The state after the piece before; None is zero.
            cu_seqlens: Bounds of packed sequences [B + 1], int32.

        Returns:
            The stream after the block, and the state after its last step.
        """
        self._require_stream("SDTCM.scan", u, "B, T")
        self._require_causal("SDTCM.scan")
        if state is not None and self.norm is not None:
            self.norm.require_running("SDTCM.scan")
        return self._composed(u, cu_seqlens, state)

    def step(self, u: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One time step [B, D] from a state (None: zero): the stream after the block, and the state after it."""
        self._require_stream("SDTCM.step", u, "B")
        self._require_causal("SDTCM.step")
        if self.norm is not None:
            self.norm.require_running("SDTCM.step")
        spikes, last = self.token_neuron.step(self._before(u), state)
        return self._after(u, spikes), last

    def init_state(self, batch: int) -> Any:
        """The zero state of `batch` sequences; None, which means the same, for a neuron without `init_state`."""
        self._require_causal("SDTCM.init_state")
        return zero_state(self.token_neuron, batch)

    def why_not_fused(self, u: Tensor) -> str | None:
        """Why the block does not run as one operator for this stream; None if it does."""
        return fused.why_not(self, u)

    @torch.no_grad()
    def _init_positional_bias(self, positional_bias: float) -> None:
        """Set the biases of the norm for this distance; two neurons on one norm get the mean of their biases.

        A constant current b moves the potential from 0 to its fixed point bΔ / (1 - φ)."""
        needed = []
        for neuron in self._token_neurons():
            if not isinstance(neuron, PRF):
                raise ValueError(
                    f"SDTCM: positional_bias must be 0 unless neuron is a PRF, got {positional_bias!r} and {neuron!r}"
                )
            c = neuron.coefficients()
            phi_re, phi_im, gain = c["phi_re"], c["phi_im"], c["gain"]
            remembers = torch.hypot(phi_re, phi_im) >= math.exp(-1 / BIASED_MEMORY)  # |φ| = exp(-Δ/τ)
            needed.append(torch.hypot(1 - phi_re, phi_im) / gain * remembers)
        # Signs alternate: Δ and θ are in random order already, and random signs would change all later draws.
        bias = positional_bias * torch.stack(needed).mean(0)
        bias[1::2] *= -1
        self.norm.bias.copy_(bias)  # type: ignore[union-attr] # see require_positional_bias

    def _token_neurons(self) -> list[Any]:
        return [neuron for neuron in (self.token_neuron, self.token_neuron_reverse) if neuron is not None]

    def _composed(self, u: Tensor, cu_seqlens: Tensor | None, state: Any = None) -> tuple[Tensor, Any]:
        """Run the block part by part: the definition."""
        x = self._before(u)
        spikes, last = self.token_neuron.scan(x, state, cu_seqlens=cu_seqlens)
        if self.token_neuron_reverse is not None:
            reverse_spikes, _ = self.token_neuron_reverse.scan(x, None, cu_seqlens=cu_seqlens, reverse=True)
            spikes = torch.cat((spikes, reverse_spikes), -1)
        return self._after(u, spikes), last

    def _before(self, u: Tensor) -> Tensor:
        """Input of the temporal neuron."""
        return self.norm(u) if self.norm is not None and self.prenorm else u

    def _after(self, u: Tensor, spikes: Tensor) -> Tensor:
        """The block after the temporal neuron. It is stateless, so `step` and whole sequences share it."""
        if self.log_amplitude is not None:
            spikes = spikes * self.log_amplitude.exp().to(spikes.dtype)
        out = u + self._drop(self.token_linear(spikes))
        if self.channel_neuron is not None and self.channel_linear is not None:
            out = out + self._drop(self.channel_linear(self.channel_neuron(out)))
        return self.norm(out) if self.norm is not None and not self.prenorm else out

    def _drop(self, x: Tensor) -> Tensor:
        return x * self._dropout_mask(x) if self.training and self.dropout > 0 else x

    def _dropout_mask(self, x: Tensor) -> Tensor:
        """The mask of a dropout of time steps, [..., 1]: 0, or 1 / (1 - dropout)."""
        return F.dropout(x.new_ones((*x.shape[:-1], 1)), self.dropout)

    def _require_stream(self, op: str, u: Tensor, dims: str) -> None:
        if not isinstance(u, Tensor):
            raise TypeError(f"{op}: u must be a tensor [{dims}, {self.features}], got {type(u).__name__}")
        require_floating(op, "u", u)
        if u.dim() != len(dims.split(",")) + 1 or u.shape[-1] != self.features:
            raise ValueError(f"{op}: u must have shape [{dims}, {self.features}], got {list(u.shape)}")

    def _require_causal(self, op: str) -> None:
        if self.bidirectional:
            raise RuntimeError(f"{op}: a bidirectional block needs whole sequences and cannot be streamed")

    def extra_repr(self) -> str:
        order = "none" if self.norm is None else "pre" if self.prenorm else "post"
        alpha = "" if self.log_amplitude is None else ", token amplitude trained"
        spatial = "" if self.channel_neuron is not None else ", spatial='identity'"
        return f"{self.features}, norm={order}, dropout={self.dropout:g}{alpha}{spatial}"

    def fold(self, c: Array, d: Array, floor: float) -> tuple[list[Layer], Array, Array]:
        """Fold the block into two layers on the stream c z + d (one without spatial neuron), and c and d after it.

        See `resofire.nn.folded`.
        """
        gain, offset = np.ones_like(c), np.zeros_like(c)
        if self.norm is not None and self.prenorm:
            gain, offset = norm_affine(self.norm, floor)
        groups = [fold_method(neuron)(gain * c, gain * d + offset) for neuron in self._token_neurons()]
        layers = [Layer(tuple(groups), weight_rows(self.token_linear.weight, self.log_amplitude) / c)]
        d = d + to_array(self.token_linear.bias)
        if self.channel_neuron is not None and self.channel_linear is not None:
            channel = fold_spatial(float(self.channel_neuron.threshold), c, d)
            rows = weight_rows(self.channel_linear.weight, self.channel_neuron.log_amplitude) / c
            layers.append(Layer((channel,), rows))
            d = d + to_array(self.channel_linear.bias)
        if self.norm is not None and not self.prenorm:
            gain, offset = norm_affine(self.norm, floor)
            c, d = gain * c, gain * d + offset
            if (c == 0).any():
                layers[-1] = replace(layers[-1], clear=c == 0)
                c = np.where(c == 0, 1.0, c)
        return layers, c, d

    def count(self, name: str, steps: float, rates: Mapping[str, float], *, fold_norm: bool = False) -> list[Count]:
        """Count the parts of the block.

        A bidirectional block has two temporal neurons and one Linear of 2D inputs. The size α of spikes costs nothing:
        it is part of the weights that read them.

        Args:
            name: The block's name in its network.
            steps: Time steps per inference.
            rates: Fire rate of each neuron layer by its name in the network.
            fold_norm: Count the norm as part of its neighbours, that is, not at all.
        """
        features = self.features
        norm = [] if self.norm is None or fold_norm else [count_norm(f"{name}.norm", features, steps)]
        parts = list(norm) if self.prenorm else []
        active: float = 0
        for part in ("token_neuron", "token_neuron_reverse"):
            neuron = getattr(self, part)
            if neuron is not None:
                fired = rate_of(rates, f"{name}.{part}") * features
                parts += count_temporal(neuron, f"{name}.{part}", steps, fired)
                active += fired
        parts += [
            count_synapses(self.token_linear, f"{name}.token_linear", "token linear", active, steps),
            count_residual(f"{name}.token_shortcut", features, steps),
        ]
        if self.channel_neuron is not None:
            fired = rate_of(rates, f"{name}.channel_neuron") * features
            parts += [
                Count(layer=f"{name}.channel_neuron", component="spatial neuron", times=steps, compare=features,
                      activations_read=NUMBER * features, activations_written=SPIKE * features),
                count_synapses(self.channel_linear, f"{name}.channel_linear", "channel linear", fired, steps),
                count_residual(f"{name}.channel_shortcut", features, steps),
            ]  # fmt: skip
        return parts if self.prenorm else [*parts, *norm]


def require_share(owner: str, name: str, value: float) -> None:
    """A number from 0 up to, but not, 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{owner}: {name} must be from 0 up to, but not, 1, got {value!r}")


def require_positional_bias(owner: str, bias: float, norm: str, prenorm: bool) -> None:
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not 0 <= bias <= 1e6:
        raise ValueError(f"{owner}: positional_bias must be a number from 0 to 1e6, got {bias!r}")
    if bias > 0 and (norm == "none" or not prenorm):
        raise ValueError(
            f"{owner}: positional_bias must be 0 without a norm before the neuron, got {bias!r}, norm={norm!r} and "
            f"prenorm={prenorm!r}"
        )


def _temporal_neuron(neuron: NeuronConfig | Callable[[int], nn.Module], features: int) -> nn.Module:
    make = getattr(neuron, "build", neuron)
    if not callable(make) or isinstance(neuron, nn.Module):
        raise TypeError(
            f"SDTCM: neuron must be settings such as PRFConfig() or a callable that makes a neuron of some features, "
            f"got {neuron!r}"
        )
    module = make(features)
    if not isinstance(module, nn.Module) or not (hasattr(module, "scan") and hasattr(module, "step")):
        raise TypeError(f"SDTCM: neuron must make a module with scan and step, got {type(module).__name__}")
    return module
