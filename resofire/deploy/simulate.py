"""A fixed-point network simulated at the speed of a kernel, with the bits of `reference.run_integer`."""

import numpy as np

from ..nn.folded import KINDS, POOLS, RESETS, Array
from . import kernels_integer as k
from .quantized import Quantized
from .reference import Result, encoded, run_integer
from .stream import Packer, place


class Simulation:
    """Runs a fixed-point network on sequences, one by one.

    Args:
        quantized: The network. A bidirectional one is run by the reference.
    """

    def __init__(self, quantized: Quantized) -> None:
        self.quantized = quantized
        self._ends = np.cumsum([len(layer.rows) for layer in quantized.layers])[:-1]
        if quantized.causal:
            self._network = _pack(quantized)

    def run(self, x: Array) -> Result:
        """Scores and spikes of one sequence, values [T, inputs] or tokens [T]."""
        if not self.quantized.causal:
            return run_integer(self.quantized, x)
        return self.run_with_states(x)[0]

    def run_with_states(self, x: Array) -> tuple[Result, Array]:
        """As `run`, and the states after the last step in the order of the C file: all u, then, with a PRF, all r."""
        groups = [layer.neurons[0] for layer in self.quantized.layers]
        output = self._run(x)
        scores = output.scores if self.quantized.pool == "none" else output.scores[0]
        states = output.state[:, np.concatenate([np.full(group.count, group.kind != "spatial") for group in groups])]
        flat = states.reshape(-1) if any(group.kind == "prf" for group in groups) else states[0]
        return Result(scores, np.split(output.fired.view(bool), self._ends, 1)), flat

    def digest(self, x: Array) -> int:
        """32 bits that stand for every spike, its time and the last states; a board prints the same."""
        result, states = self.run_with_states(x)
        return int(k.digest(np.concatenate(result.spikes, 1).view(np.uint8), states))

    def _run(self, x: Array) -> k.Output:
        quantized = self.quantized
        if not quantized.causal:
            raise ValueError("simulate: the network is bidirectional: it has no last state")
        x = encoded(quantized, x)
        output = k.Output(
            state=np.zeros((2, quantized.neurons), np.int64),
            fired=np.zeros((len(x), quantized.neurons), np.uint8),
            scores=np.zeros((len(x) if quantized.pool == "none" else 1, len(quantized.bias)), np.int64),
        )
        k.walk(self._network, x.reshape(len(x), -1), output)
        return output


def _pack(quantized: Quantized) -> k.Network:
    q, packer = quantized, Packer(np.int64)
    layout = np.zeros(k.FIRST + k.LAYER * len(q.layers), np.int64)
    factor, shift, fraction, drop = q.leak if q.pool == "leaky" else (0, 0, 0, 0)
    place(layout, {
        k.TOKENS: q.tokens, k.INPUTS: 1 if q.tokens else len(q.table), k.ENTRY: q.table.shape[1],
        k.WIDTH: q.head.shape[0], k.CLASSES: q.head.shape[1], k.POOL: POOLS.index(q.pool), k.LAYERS: len(q.layers),
        k.TABLE: packer.add(q.table), k.SHIFT: packer.add(q.shift), k.BASE: packer.add(q.base),
        k.HEAD: packer.add(q.head), k.BIAS: packer.add(q.bias), k.HEAD_DROP: q.head_drop, k.TOP: q.top,
        k.BITS: q.phi_bits, k.POOL_STEPS: q.pool_steps or 0, k.LEAK_FACTOR: factor, k.LEAK_SHIFT: shift,
        k.LEAK_FRACTION: fraction, k.LEAK_DROP: drop,
    })  # fmt: skip
    start = 0
    for number, layer in enumerate(q.layers):
        (neurons,) = layer.neurons
        place(layout[k.FIRST + k.LAYER * number :], {
            k.KIND: KINDS.index(neurons.kind), k.COUNT: neurons.count, k.OUTPUTS: layer.rows.shape[1],
            k.FRESH: layer.fresh, k.RESET: RESETS.index(neurons.reset), k.SIGN: packer.add(neurons.sign),
            k.THRESHOLD: packer.add(neurons.threshold), k.CURRENT: packer.add(neurons.current),
            k.RE: packer.add(neurons.phi_re), k.IM: packer.add(neurons.phi_im), k.MOVE: packer.add(neurons.lift),
            k.ROWS: start, k.LIFT: packer.add(layer.lift), k.DROP: packer.add(layer.drop),
            k.KEEP: -1 if layer.clear is None else packer.add(~layer.clear),
        })  # fmt: skip
        start += layer.rows.size
    return k.Network(layout, packer.packed(), np.concatenate([layer.rows.reshape(-1) for layer in q.layers]))
