"""The layers that `peers` puts side by side: ours, the time loop, SpikingJelly, snnTorch, S4D and a Transformer.

All map [B, T, D] to [B, T, D]. The neurons mix time only; the layers (SD-TCM, S4D, Transformer) mix time and channels,
with norm and shortcut. S4D and Transformer are written here, in torch alone. A package that is not installed is named
in one sentence, and its layers are left out.
"""

import importlib
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function

from resofire.nn import LIF, PRF, SDTCM, fire_rates
from resofire.ops import ATan
from resofire.ops.convolution import convolve, powers, reset_scan
from resofire.ops.surrogate import spike

TAU, BETA = 2.0, 0.5  # of all LIF: β = 1 - 1/τ
RATES = (0.07, 0.22)  # temporal and spatial fire rate of the SD-TCM: the middle of what trained networks show


class Absent(Exception):
    """A package that a peer needs is not installed."""


class Peer(NamedTuple):
    group: str  # "neuron" or "layer"
    build: Callable[[int], nn.Module]  # from the number of channels
    longest: int  # the longest sequence that is measured; what is beyond is extrapolated
    what: str


class S4D(nn.Module):
    """A diagonal state space layer (S4D-Lin): `states` / 2 complex pairs per channel, the kernel applied by FFT.

        h_t = Ā h_{t-1} + B̄ x_t,    y_t = 2 Re(C h_t) + D x_t,    out = x + Linear(GELU(y))

    with Ā = e^{ΔA} and B̄ = (e^{ΔA} - 1) / A (zero-order hold); x is normed first.
    """

    def __init__(self, features: int, states: int = 64) -> None:
        super().__init__()
        pairs = states // 2
        self.norm = nn.LayerNorm(features)
        self.log_delta = nn.Parameter(torch.empty(features).uniform_(math.log(1e-3), math.log(1e-1)))
        self.log_decay = nn.Parameter(torch.full((features, pairs), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(pairs).float().repeat(features, 1))
        self.read = nn.Parameter(torch.randn(features, pairs, 2) / math.sqrt(2))
        self.skip = nn.Parameter(torch.randn(features))
        self.linear = nn.Linear(features, features)

    def poles(self) -> tuple[Tensor, Tensor]:
        """ΔA and C B̄, each [D, states / 2]."""
        decay = torch.complex(-self.log_decay.exp(), self.frequency)
        scaled = decay * self.log_delta.exp()[:, None]
        return scaled, torch.view_as_complex(self.read) * (scaled.exp() - 1) / decay

    def kernel(self, length: int) -> Tensor:
        """K_k = 2 Re Σ C B̄ Ā^k as [T, D]."""
        scaled, weight = self.poles()
        steps = torch.arange(length, device=scaled.device)
        return 2 * torch.einsum("dn,dnt->td", weight, (scaled[..., None] * steps).exp()).real

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        mixed = convolve(normed, self.kernel(x.shape[1])) + self.skip * normed
        return x + self.linear(F.gelu(mixed))


class Transformer(nn.Module):
    """A causal pre-norm Transformer layer: attention over `heads` heads, then an MLP four times as wide.

    It equals `nn.TransformerEncoderLayer(norm_first=True, activation="gelu")`, which would want the causal mask as a
    T x T tensor: 4 GB at T = 32,768. Here attention never makes one.
    """

    def __init__(self, features: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.into, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.linear1, self.linear2 = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.into(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


def block(features: int) -> SDTCM:
    """An SD-TCM whose neurons fire as in trained networks: their thresholds are moved until they do."""
    made = SDTCM(features)
    x = torch.randn(4, 512, features)
    for neuron, rate in zip((made.token_neuron, made.channel_neuron), RATES, strict=True):
        low, high = -20.0, 20.0
        for _ in range(20):
            neuron.threshold = (low + high) / 2
            with torch.no_grad(), fire_rates(neuron) as measured:
                made(x)
            low, high = (neuron.threshold, high) if measured[""] > rate else (low, neuron.threshold)
    return made


class LoopLIF(nn.Module):
    """The LIF as autograd's loop over time, its parts named for the profiler: the paper's sequential training."""

    def forward(self, x: Tensor) -> Tensor:
        v, spikes = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            with record_function("Charge"):
                u = BETA * v + x[:, t]
            with record_function("Fire"):
                s = spike(u - 1.0, ATan())
            with record_function("Reset"):
                v = u - s.detach()
            spikes.append(s)
        return torch.stack(spikes, 1)


class FourierLIF(nn.Module):
    """The LIF by FFT and decoupled reset, its parts named for the profiler: the paper's parallel training."""

    def forward(self, x: Tensor) -> Tensor:
        beta, threshold = torch.full_like(x[0, 0], BETA), torch.ones_like(x[0, 0])
        with record_function("Scan Kernel"):
            table = powers(beta, x.shape[1] + 1)
        with record_function("FFT Conv Op."):
            potential = convolve(x, table[:-1])
        with record_function("Scan Dynamic Thr."):
            fired = reset_scan(potential.detach(), beta, threshold)
            late = F.pad(fired.to(x.dtype), (0, 0, 1, 0))[:, :-1]
            moved = threshold * (1 + convolve(late, table[1:]))
        with record_function("Fire"):
            return spike(potential - moved, ATan(), fired)


class Adapted(nn.Module):
    """A function of a peer's module, as a layer of [B, T, D]."""

    def __init__(self, inner: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.inner, x)


def _package(name: str, title: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers use what newer releases of torch deprecate
            return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise Absent(f"{title} is not installed ({missing}): its rows are left out") from None


def spikingjelly(features: int) -> nn.Module:
    neuron = _package("spikingjelly.activation_based.neuron", "SpikingJelly")
    surrogate = _package("spikingjelly.activation_based.surrogate", "SpikingJelly")
    node = neuron.LIFNode(
        TAU, decay_input=False, v_reset=None, surrogate_function=surrogate.ATan(2.0), detach_reset=True, step_mode="m",
    )  # fmt: skip

    return _stateful(node)


def _stateful(node: Any) -> nn.Module:
    """A node of SpikingJelly, which wants time first and keeps its state."""

    def call(node: Any, x: Tensor) -> Tensor:
        node.reset()
        out = node(x.transpose(0, 1))
        return (out[0] if isinstance(out, tuple | list) else out).transpose(0, 1)

    return Adapted(node, call)


def spikingjelly_resonate(features: int) -> nn.Module:
    neuron = _package("spikingjelly.activation_based.neuron", "SpikingJelly")
    surrogate = _package("spikingjelly.activation_based.surrogate", "SpikingJelly")
    return _stateful(neuron.RAFNode(surrogate_function=surrogate.ATan(2.0), detach_reset=True, step_mode="m"))


def spikingjelly_flex(features: int) -> nn.Module:
    """The same LIF as a step function, which FlexSN compiles on GPUs and loops over on CPUs."""
    neuron = _package("spikingjelly.activation_based.neuron", "SpikingJelly")
    surrogate = _package("spikingjelly.activation_based.surrogate", "SpikingJelly")
    fire = surrogate.atan.apply

    def core(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u = BETA * v + x
        s = fire(u - 1.0, 2.0)
        return s, u - s.detach()

    return _stateful(neuron.FlexSN(core, 1))


def snntorch_leaky(features: int, reset: str = "subtract") -> nn.Module:
    """Over `unbind`, which spares it the quadratic gradient of slices."""
    leaky = _package("snntorch", "snnTorch").Leaky(beta=BETA, reset_mechanism=reset)

    def call(leaky: Any, x: Tensor) -> Tensor:
        u, spikes = torch.zeros_like(x[:, 0]), []
        for c in x.unbind(1):
            s, u = leaky(c, u)
            spikes.append(s)
        return torch.stack(spikes, 1)

    return Adapted(leaky, call)


def snntorch_state(features: int) -> nn.Module:
    neuron = _package("snntorch", "snnTorch").StateLeaky(beta=BETA, channels=features)
    return Adapted(neuron, lambda neuron, x: neuron(x.transpose(0, 1))[0].transpose(0, 1))


LOOPS, ALL = 4096, 32768
PEERS: dict[str, Peer] = {
    "PRF": Peer("neuron", PRF, ALL, "resofire, fused scan"),
    "LIF": Peer("neuron", LIF, ALL, "resofire, fused scan, soft reset"),
    "LIF by FFT": Peer("neuron", lambda n: LIF(n, backend="fft"), ALL, "the paper's parallel training"),
    "LIF loop": Peer(
        "neuron", lambda n: LIF(n, backend="reference"), LOOPS, "autograd's loop, the paper's sequential training"
    ),
    "SpikingJelly LIFNode": Peer("neuron", spikingjelly, LOOPS, "the same LIF, multi-step"),
    "snnTorch Leaky": Peer(
        "neuron", snntorch_leaky, ALL, "another model: it subtracts the reset after the decay; looped over unbind"
    ),
    "snnTorch StateLeaky": Peer(
        "neuron", snntorch_state, LOOPS, "another model: no reset, decay e^(-1/τ); one convolution as long as the input"
    ),
    "SD-TCM block": Peer("layer", block, ALL, "resofire, fused; fires at 7 % (temporal) and 22 % (spatial)"),
    "S4D": Peer("layer", S4D, ALL, "64 states, kernel by FFT, GELU, Linear"),
    "Transformer": Peer("layer", Transformer, ALL, "4 heads, causal scaled_dot_product_attention, MLP of 4 D"),
}


def installed() -> tuple[dict[str, Peer], list[str]]:
    """The peers that can be built here, and a sentence for each package that is missing."""
    available, missing = {}, []
    for name, peer in PEERS.items():
        try:
            peer.build(2)
        except Absent as reason:
            missing.append(str(reason))
        else:
            available[name] = peer
    return available, list(dict.fromkeys(missing))
