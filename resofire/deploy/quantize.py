"""From a folded network to fixed point: weights of 8, 6 or 4 bits, states of 16, 24 or 32.

Scales are calibrated on sequences. A channel's unit is just large enough that the observed range, and a quarter more,
fits into the state; within that, the unit and the shifts of the layers that write to the channel minimise the error of
what spikes add, each weight counting as often as its neuron fires. No layer or channel pays for the range of another.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..nn.folded import Array, Folded, Layer, Neurons
from .observe import Observed, observe
from .quantized import STATE_BITS, WEIGHT_BITS, IntegerLayer, IntegerNeurons, Quantized
from .reference import centred

MARGIN = 1.25
# Candidate units within each factor of two.
FINENESS = 16
# Fraction bits of φ by the bits of the state: a neuron's step then fits into 32 bits (states of 16) or 64.
PHI_BITS = {16: 14, 24: 23, 32: 30}


def quantize(
    folded: Folded,
    samples: Sequence[Array],
    *,
    weight_bits: int = 8,
    state_bits: int = 16,
    input_bits: int = 8,
    phi_bits: int | None = None,
) -> Quantized:
    """Round a folded network to fixed point.

    Args:
        folded: The network, see `fold`.
        samples: Sequences to calibrate scales on, tokens [T] or values [T, inputs]: some tens of real ones.
        weight_bits: 8, 6 or 4, of the synapses (and of a table of tokens).
        state_bits: 16, 24 or 32, of accumulators and states; they saturate.
        input_bits: 1 to 16, of each value at the input.
        phi_bits: 1 to 30, of the fraction of φ; by default 14, 23 or 30, by the bits of the state.

    Returns:
        The fixed-point network.

    Raises:
        TypeError: `folded` is not a folded network.
        ValueError: A width is not one of these, a sample does not fit the network, or a state grows without input.
    """
    _check_bits(weight_bits, state_bits, input_bits, phi_bits)
    seen = observe_samples(folded, samples, input_bits)
    return quantize_observed(
        folded, seen, weight_bits=weight_bits, state_bits=state_bits, input_bits=input_bits, phi_bits=phi_bits
    )


def observe_samples(folded: Folded, samples: Sequence[Array], input_bits: int = 8) -> Observed:
    """Run the calibration samples; quantisations of several widths can share the result. Raises as `quantize`."""
    _check_network(folded)
    if not len(samples):
        raise ValueError("quantize: samples must hold at least one sequence, got none")
    for x in samples:
        fault = folded.input_fault(np.asarray(x))
        if fault:
            raise ValueError(f"quantize: samples must be {fault}")
    return observe(folded, samples, input_bits)


def quantize_observed(
    folded: Folded,
    seen: Observed,
    *,
    weight_bits: int = 8,
    state_bits: int = 16,
    input_bits: int = 8,
    phi_bits: int | None = None,
) -> Quantized:
    """As `quantize`, with samples that were observed before, with the same `input_bits`."""
    _check_bits(weight_bits, state_bits, input_bits, phi_bits)
    phi_bits = PHI_BITS[state_bits] if phi_bits is None else phi_bits
    folded = folded.astype(np.float64)
    units, lifts, drops = _scales(folded, seen, weight_bits, state_bits)
    top = 1 << (weight_bits - 1)
    layers = []
    for number, layer in enumerate(folded.layers):
        groups = tuple(
            _neurons(group, most, units[number], state_bits, phi_bits)
            for group, most in zip(layer.neurons, seen.states[number], strict=True)
        )
        lift = lifts[number + 1]
        rows = _rounded(layer.rows / (units[number + 1] * 2.0**lift), top - 1).astype(np.int8)
        layers.append(IntegerLayer(groups, rows, lift, drops[number + 1], fresh=layer.fresh, clear=layer.clear))
    if folded.tokens:
        shift, base = lifts[0], np.zeros_like(lifts[0])
        table = _rounded(folded.table / (units[0] * 2.0**shift), top - 1)
    else:
        table = folded.table * seen.pitch[:, None] / units[0]
        shift = np.clip(state_bits - 2 - _power(np.abs(table).max(0)), 0, 16)
        table = _rounded(table * 2.0**shift, (1 << 31) - 1)
        base = _rounded(centred(folded, seen.origin) @ folded.table / units[0] * 2.0**shift, 1 << 48)
    # The read-out uses at most 24 bits, so that 64 hold the sum over many steps.
    head_drop = max(0, state_bits - 24)
    head = folded.head * units[-1][:, None] * 2.0**head_drop
    score_unit = float(np.abs(head).max() / ((1 << 15) - 1)) or 1.0
    quantized = Quantized(
        weight_bits=weight_bits,
        state_bits=state_bits,
        phi_bits=phi_bits,
        input_bits=input_bits,
        tokens=folded.tokens,
        table=table,
        shift=shift,
        base=base,
        origin=seen.origin,
        pitch=seen.pitch,
        layers=tuple(layers),
        pool=folded.pool,
        head=_rounded(head / score_unit, (1 << 15) - 1),
        head_drop=head_drop,
        bias=_rounded(folded.bias / score_unit, 1 << 46),
        score_unit=score_unit,
        class_names=folded.class_names,
        pool_steps=folded.pool_steps,
    )
    if folded.pool == "window" and (folded.pool_steps or 0) > quantized.longest_sum:
        raise ValueError(
            f"quantize: a window must have at most {quantized.longest_sum} steps, so that 64 bits hold its sum, got "
            f"{folded.pool_steps}"
        )
    return quantized


def _neurons(neurons: Neurons, most: Array, unit: Array, state_bits: int, phi_bits: int) -> IntegerNeurons:
    top = (1 << (state_bits - 1)) - 1
    coarser = np.zeros(neurons.count, np.int64)
    if neurons.kind != "spatial":
        coarser = np.clip(_power(most * MARGIN / (top * unit)), 0, phi_bits)
    threshold = np.clip(np.floor(neurons.threshold / (unit * 2.0**coarser) + 0.5) - 1, -top - 1, top)
    one = 1 << phi_bits
    return IntegerNeurons(
        kind=neurons.kind,
        sign=neurons.sign,
        threshold=threshold.astype(np.int64),
        current=_rounded(neurons.current / unit, top),
        phi_re=_rounded(neurons.phi_re * one, one - 1),
        phi_im=_rounded(neurons.phi_im * one, one - 1),
        lift=phi_bits - coarser,
        reset=neurons.reset,
    )


def _scales(
    folded: Folded, seen: Observed, weight_bits: int, state_bits: int
) -> tuple[list[Array], list[Array], list[Array]]:
    """For z before the first layer and after each: its units, and the lifts and drops of the weights added to it."""
    weights: list[tuple[Array, Array] | None] = [(folded.table, seen.tokens) if folded.tokens else None]
    weights += [(layer.rows, rate) for layer, rate in zip(folded.layers, seen.rates, strict=True)]
    ranges = [_range(*each) for each in zip(seen.z, (*folded.layers, None), weights, strict=True)]
    # Channels get new units where a layer starts from zero; until then a unit only grows, by powers of two.
    starts = [0, *(number + 1 for number, layer in enumerate(folded.layers) if layer.fresh), len(weights)]
    scales: tuple[list[Array], list[Array], list[Array]] = ([], [], [])
    for first, last in pairwise(starts):
        for all_scales, added in zip(
            scales, _units(weights[first:last], ranges[first:last], weight_bits, state_bits), strict=True
        ):
            all_scales += added
    return scales


def _range(most: Array, layer: Layer | None, weights: tuple[Array, Array] | None) -> Array:
    """The range of z before a layer: at least the observed range, its constant currents, and one spike."""
    candidates = [most, *(np.abs(group.current) for group in (layer.neurons if layer is not None else ()))]
    if weights is not None:
        candidates.append(np.abs(weights[0]).max(0))
    largest = np.max(candidates, axis=0)
    return np.where(largest == 0, 1.0, largest)


def _units(
    weights: list[tuple[Array, Array] | None], ranges: list[Array], weight_bits: int, state_bits: int
) -> tuple[list[Array], list[Array], list[Array]]:
    """Units, lifts and drops of consecutive layers that add to the same channels: the best of `FINENESS` candidates."""
    least = np.log2(np.maximum.accumulate(ranges) * MARGIN / ((1 << (state_bits - 1)) - 1))
    best = np.full(least.shape[1], np.inf)
    units, lifts = 2.0**least, np.zeros(least.shape, np.int64)
    for part in np.arange(FINENESS) / FINENESS:
        tried = 2.0 ** (np.ceil(least - part) + part)
        tried_lifts, errors = np.zeros_like(lifts), np.zeros_like(best)
        for i, each in enumerate(weights):
            if each is not None:
                error, tried_lifts[i] = _lift(*each, tried[i], (1 << (weight_bits - 1)) - 1)
                errors += error
        better = errors < best
        best, units, lifts = (
            np.where(better, errors, best),
            np.where(better, tried, units),
            np.where(better, tried_lifts, lifts),
        )
    drops = np.diff(np.log2(units), axis=0, prepend=np.log2(units[:1]))
    return list(units), list(lifts), list(np.round(drops).astype(np.int64))


def _lift(weight: Array, rate: Array, unit: Array, top: int) -> tuple[Array, Array]:
    """The relative square error of each column and the lift that minimises it; large weights may be clipped."""
    rate = (rate + 1e-3)[:, None]
    size = (rate * weight**2).sum(0) + 1e-300
    unclipped = np.maximum(_power(np.abs(weight).max(0) / (top * unit)), 0)
    best, lift = np.full(unit.shape, np.inf), unclipped
    for fewer in range(3):
        tried = np.maximum(unclipped - fewer, 0)
        step = unit * 2.0**tried
        error = (rate * (_rounded(weight / step, top) * step - weight) ** 2).sum(0) / size
        lift, best = np.where(error < best, tried, lift), np.minimum(error, best)
    return best, lift


def _power(x: Array) -> Array:
    """The smallest integer p with x ≤ 2^p; x = 0 counts as 1e-30."""
    return np.ceil(np.log2(np.maximum(x, 1e-30))).astype(np.int64)


def _rounded(x: Array, top: int) -> Array:
    return np.clip(np.floor(x + 0.5), -top, top).astype(np.int64)


def _check_network(folded: Any) -> None:
    if not isinstance(folded, Folded):
        raise TypeError(f"quantize: folded must be a Folded (see fold), got {type(folded).__name__}")
    if folded.equation_owner is not None:
        raise ValueError(f"quantize: folded must have PRF and LIF neurons, got {folded.equation_owner}")
    for layer in folded.layers:
        for group in layer.neurons:
            largest = float(np.hypot(group.phi_re, group.phi_im).max(initial=0))
            if not largest <= 1:
                raise ValueError(f"quantize: folded must not grow by itself, |φ| must be at most 1, got {largest:g}")


def _check_bits(weight_bits: int, state_bits: int, input_bits: int, phi_bits: int | None) -> None:
    for name, value, allowed in (("weight_bits", weight_bits, WEIGHT_BITS), ("state_bits", state_bits, STATE_BITS)):
        if value not in allowed:
            raise ValueError(f"quantize: {name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
    for name, value, most in (("input_bits", input_bits, 16), ("phi_bits", 30 if phi_bits is None else phi_bits, 30)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"quantize: {name} must be an integer from 1 to {most}, got {value!r}")
