"""Every registered backend against the reference: spikes, final state and gradients, within DESIGN's agreement."""

import pytest
import torch
from looped import loop_over
from neurons import OPTIONS, assert_agrees, cases, make, peaks

CASE = ("op", "backend", "options", "size", "dtype")
BOTH = [torch.float64, torch.float32]
SIZES = [(1, 1, 1), (2, 63, 5), (1, 784, 33), (3, 1000, 16)]


@pytest.mark.parametrize(CASE, cases(SIZES, BOTH))
def test_random_input(op, backend, options, size, dtype):
    assert_agrees(backend, make(op, *size, **options), dtype)


@loop_over("kind", ["threshold", "huge", "tiny", "zero"])
@pytest.mark.parametrize(CASE, cases([(2, 63, 8)], BOTH, every_reset=False))
def test_adversarial_input(op, backend, options, size, dtype, kind):
    if (op, kind) == ("lif", "threshold"):
        return  # an exact tie at the first step of every lane: see test_an_exact_tie_fires
    least = 0.15 if kind == "huge" else 0.5
    assert_agrees(backend, make(op, *size, kind=kind, **options), dtype, least)


@pytest.mark.parametrize(CASE, cases([(3, 40, 37)], [torch.float64], every_reset=False))
@loop_over("layout", ["time first", "lane first", "every other", "expanded"])
def test_any_strides(op, backend, options, size, dtype, layout):
    inputs = make(op, *size, **options)
    current = inputs.current.detach()
    inputs.current = {
        "time first": lambda: current.transpose(0, 1).contiguous().transpose(0, 1),
        "lane first": lambda: current.mT.contiguous().mT,
        "every other": lambda: current.repeat_interleave(2, 2)[:, :, ::2],
        "expanded": lambda: current[:1, :, :1].expand(size),
    }[layout]()
    assert_agrees(backend, inputs, dtype)


@pytest.mark.parametrize(CASE, cases([(2, 40, 5)], [torch.float64], every_reset=False))
@loop_over("layout", ["every other", "time first", "one number", "one row"])
def test_any_strides_of_the_gradient(op, backend, options, size, dtype, layout):
    inputs = make(op, *size, **options)
    grad = {
        "every other": lambda: torch.randn(*size[:2], 2 * size[2], dtype=torch.float64)[:, :, ::2],
        "time first": lambda: torch.randn(size[1], size[0], size[2], dtype=torch.float64).transpose(0, 1),
        "one number": lambda: torch.randn(1, 1, 1, dtype=torch.float64).expand(size),
        "one row": lambda: torch.randn(1, 1, size[2], dtype=torch.float64).expand(size),
    }[layout]()
    gradients = []
    for name in ("reference", backend):
        call = inputs.to(torch.float64)
        call.run(name)[0].backward(grad)
        gradients.append({leaf: x.grad for leaf, x in call.leaves().items()})
    for leaf, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][leaf], expected, rtol=1e-9, atol=1e-9)


# Without the FFT, which does not keep exact numbers exact.
TIES = [case for case in cases([(2, 20, 3)], BOTH, every_reset=False) if case.values[1] != "fft"]


@pytest.mark.parametrize(CASE, TIES)
def test_an_exact_tie_fires(op, backend, options, size, dtype):
    """Numbers that every type holds exactly, so that u = V is no matter of rounding."""
    inputs = make(op, *size, kind="zero", **options).to(dtype)
    with torch.no_grad():
        # 1 fires at once; after a soft reset 0.5 and then 0.75 add up to 1 again with β = 0.5, and so on.
        inputs.current[:, 0] = 1.0
        inputs.current[:, 3], inputs.current[:, 4] = 0.5, 0.75
        inputs.current[:, 9] = -1.0
        inputs.current[:, 12] = 1.0
        values = {"phi_re": 0.5, "phi_im": 0.0, "delta": 1.0, "beta": 0.5, "threshold": 1.0}
        for name, leaf in inputs.coefficients.items():
            leaf.fill_(values[name])
    if options["reset"] == "none":
        with torch.no_grad():
            inputs.current[:, 1:] = 0.5
    spikes, _ = inputs.run(backend)
    expected, _ = inputs.run("reference")
    assert torch.equal(spikes, expected)
    assert (spikes[:, 0] == 1).all()
    ties = (peaks(inputs) == 1).sum()
    assert ties >= 2 * spikes[:, 0].numel()


@pytest.mark.parametrize(CASE, cases([(2, 60, 6)], [torch.float16, torch.bfloat16], every_reset=False))
def test_half_precision_input_keeps_a_float32_state(op, backend, options, size, dtype):
    wide = make(op, *size, **options).to(torch.float32)
    wide.current = wide.current.detach().to(dtype).float().requires_grad_()
    half = wide.to(torch.float32)
    half.current = wide.current.detach().to(dtype).requires_grad_()
    expected, expected_state = wide.run(backend)
    spikes, state = half.run(backend)
    assert spikes.dtype == dtype
    assert all(x.dtype == torch.float32 for x in state)
    assert torch.equal(spikes.float(), expected)
    assert all(torch.equal(x, y) for x, y in zip(state, expected_state, strict=True))
    expected.sum().backward()
    spikes.sum().backward()
    assert half.current.grad is not None
    assert half.current.grad.dtype == dtype
    torch.testing.assert_close(half.current.grad, wide.current.grad.to(dtype))
    torch.testing.assert_close(half.coefficients["threshold"].grad, wide.coefficients["threshold"].grad)


@pytest.mark.parametrize("op", ["prf", "lif"])
def test_the_same_bits_again_and_with_any_number_of_threads(op):
    inputs = make(op, 5, 900, 70, **OPTIONS[op][1]).to(torch.float32)
    grad = torch.randn_like(inputs.current)

    def once():
        fresh = inputs.to(torch.float32)
        spikes, state = fresh.run("scan")
        ((spikes * grad).sum() + state[0].sum()).backward()
        return [spikes, *state, *(x.grad for x in fresh.leaves().values())]

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = once()
        torch.set_num_threads(3)
        first, second = once(), once()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    assert all(torch.equal(x, y) for x, y in zip(first, alone, strict=True))


@pytest.mark.parametrize("op", ["prf", "lif"])
def test_large_outputs_written_past_the_caches_are_the_same(op, monkeypatch):
    from resofire.ops.neuron_scan import cpu

    inputs = make(op, 2, 100, 64, **OPTIONS[op][1]).to(torch.float32)

    def once():
        fresh = inputs.to(torch.float32)
        spikes, _ = fresh.run("scan")
        (spikes * spikes.detach().cumsum(1)).sum().backward()
        return spikes, fresh.current.grad

    kept = once()
    monkeypatch.setattr(cpu, "STREAM_BYTES", 0)
    streamed = once()
    assert all(torch.equal(x, y) for x, y in zip(kept, streamed, strict=True))


@pytest.mark.parametrize("op", ["prf", "lif"])
def test_long_sums_keep_their_accuracy_in_float32(op):
    """The gradients of the coefficients at T = 10⁶, where a running float32 sum would lose four digits and more."""
    inputs = make(op, 1, 1_000_000, 3, reset="none")
    grad = torch.randn_like(inputs.current)
    calls = {}
    for dtype in (torch.float64, torch.float32):
        call = inputs.to(dtype)
        spikes, _ = call.run("scan")
        (spikes * grad.to(dtype)).sum().backward()
        calls[dtype] = call
    wide, narrow = calls[torch.float64], calls[torch.float32]
    size = wide.current.grad.abs() / wide.coefficients.get("delta", torch.ones(3)).detach()
    # Each contribution is a gradient of u times a potential of at least about 1 in size.
    bound = 1e-6 * size.sum((0, 1))
    for name, leaf in narrow.coefficients.items():
        error = (leaf.grad.double() - wide.coefficients[name].grad).abs()
        assert (error <= bound).all(), f"{name}: {(error / bound).max():.1f} times the bound"
