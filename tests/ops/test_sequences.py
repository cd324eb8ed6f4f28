"""Carried state, split and packed sequences, reverse walks, single steps: one call is the sum of its parts."""

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from looped import loop_over
from neurons import BACKENDS, IDS, OPTIONS, Inputs, can, make

from resofire.ops import LIFState, PRFState, lif_step, prf_step

# Triton's interpreter takes seconds for what the others do in milliseconds: it gets fewer and smaller examples.
QUICK = [case for case in BACKENDS if case[1] != "triton"]
QUICK_IDS = [name for name in IDS if not name.endswith("triton")]

STATES = {"prf": PRFState, "lif": LIFState}


def grads(inputs: Inputs) -> dict[str, torch.Tensor]:
    return {name: leaf.grad for name, leaf in inputs.leaves().items()}


def assert_same(expected, got, tolerance=1e-9):
    """Spikes to the bit, all else to rounding (float64)."""
    (spikes, state, leaves), (spikes2, state2, leaves2) = expected, got
    assert torch.equal(spikes, spikes2)
    for x, y in zip(state, state2, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-11)
    for name in leaves:
        torch.testing.assert_close(
            leaves[name], leaves2[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def run(inputs: Inputs, backend: str, grad: torch.Tensor, **kwargs):
    fresh = inputs.to(torch.float64)
    spikes, state = fresh.run(backend, **kwargs)
    ((spikes * grad).sum() + sum((i + 1) * x.sum() for i, x in enumerate(state))).backward()
    return spikes.detach(), [x.detach() for x in state], grads(fresh)


def bounds_of(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(lengths, dtype=torch.int64).cumsum(0).tolist()], dtype=torch.int32)


@pytest.mark.parametrize(("op", "backend"), QUICK, ids=QUICK_IDS)
@given(
    length=st.integers(1, 80),
    cut=st.floats(0, 1),
    batch=st.integers(1, 3),
    lanes=st.integers(1, 40),
    which=st.integers(0, 4),
    reverse=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_split_and_carried_state_equal_the_whole(op, backend, length, cut, batch, lanes, which, reverse, seed):
    check_split(op, backend, length, round(cut * length), batch, lanes, which, reverse, seed)


@pytest.mark.parametrize("op", ["prf", "lif"])
@settings(max_examples=5)
@given(length=st.integers(1, 36), cut=st.floats(0, 1), which=st.integers(0, 4), reverse=st.booleans())
def test_split_and_carried_state_equal_the_whole_on_triton(op, length, cut, which, reverse):
    check_split(op, "triton", length, round(cut * length), 1, 3, which, reverse, seed=length)


def check_split(op, backend, length, at, batch, lanes, which, reverse, seed):
    torch.manual_seed(seed)
    options = OPTIONS[op][which % len(OPTIONS[op])]
    assume(can(backend, options))
    inputs = make(op, batch, length, lanes, **options, reverse=reverse)
    grad = torch.randn_like(inputs.current)
    whole = run(inputs, backend, grad)

    parts = inputs.to(torch.float64)
    first, second = (slice(at, None), slice(None, at)) if reverse else (slice(None, at), slice(at, None))
    spikes = torch.empty_like(inputs.current)
    state = STATES[op](*parts.state)
    for part in (first, second):
        call = Inputs(op, parts.current[:, part], parts.coefficients, state, parts.kwargs)
        out, state = call.run(backend)
        spikes = spikes.clone()
        spikes[:, part] = out
    ((spikes * grad).sum() + sum((i + 1) * x.sum() for i, x in enumerate(state))).backward()
    assert_same(whole, (spikes.detach(), [x.detach() for x in state], grads(parts)))


@pytest.mark.parametrize(("op", "backend"), QUICK, ids=QUICK_IDS)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 31, 32, 33, 70]), min_size=1, max_size=5),
    lanes=st.sampled_from([1, 5, 32, 35]),
    which=st.integers(0, 4),
    reverse=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_packed_equals_one_by_one(op, backend, lengths, lanes, which, reverse, seed):
    check_packed(op, backend, lengths, lanes, which, reverse, seed)


@pytest.mark.parametrize("op", ["prf", "lif"])
@settings(max_examples=4)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 33]), min_size=1, max_size=3),
    which=st.integers(0, 4),
    reverse=st.booleans(),
)
def test_packed_equals_one_by_one_on_triton(op, lengths, which, reverse):
    check_packed(op, "triton", lengths, 3, which, reverse, seed=sum(lengths))


def check_packed(op, backend, lengths, lanes, which, reverse, seed):
    torch.manual_seed(seed)
    options = OPTIONS[op][which % len(OPTIONS[op])]
    assume(can(backend, options))
    bounds = bounds_of(lengths)
    inputs = make(op, 1, sum(lengths), lanes, sequences=len(lengths), **options, reverse=reverse)
    grad = torch.randn_like(inputs.current)
    packed = run(inputs, backend, grad, cu_seqlens=bounds)

    single = inputs.to(torch.float64)
    spikes, states = [], []
    for i, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        state = STATES[op](*(x[i : i + 1] for x in single.state))
        out, last = Inputs(op, single.current[:, start:end], single.coefficients, state, single.kwargs).run(backend)
        spikes.append(out)
        states.append(last)
    joined = torch.cat(spikes, 1)
    final = [torch.cat(rows) for rows in zip(*states, strict=True)]
    ((joined * grad).sum() + sum((i + 1) * x.sum() for i, x in enumerate(final))).backward()
    assert_same((joined.detach(), [x.detach() for x in final], grads(single)), packed)


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
@loop_over("length", [1, 33, 63])
def test_reverse_equals_flip(op, backend, length):
    inputs = make(op, 2, length, 5, **OPTIONS[op][1])
    grad = torch.randn_like(inputs.current)
    spikes, state, leaves = run(inputs, backend, grad, reverse=True)
    flipped = inputs.to(torch.float64)
    flipped.current = inputs.current.detach().flip(1).requires_grad_()
    spikes2, state2, leaves2 = run(flipped, backend, grad.flip(1))
    leaves2["current"] = leaves2["current"].flip(1)
    assert_same((spikes, state, leaves), (spikes2.flip(1), state2, leaves2))


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_steps_equal_one_call(op, backend):
    for options in OPTIONS[op]:
        if "reset_gradient" in options or not can(backend, options):
            continue
        inputs = make(op, 2, 40, 6, **options)
        grad = torch.randn_like(inputs.current)
        whole = run(inputs, backend, grad)
        single = inputs.to(torch.float64)
        state, spikes = STATES[op](*single.state), []
        for t in range(40):
            step = prf_step if op == "prf" else lif_step
            out, state = step(single.current[:, t], state=state, **single.coefficients, **options)
            spikes.append(out)
        joined = torch.stack(spikes, 1)
        ((joined * grad).sum() + sum((i + 1) * x.sum() for i, x in enumerate(state))).backward()
        assert_same(whole, (joined.detach(), [x.detach() for x in state], grads(single)))


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
@loop_over("shape", [(2, 0, 3), (0, 4, 3), (2, 4, 0)])
def test_empty_calls_return_empty_spikes_and_the_state_unchanged(op, backend, shape):
    inputs = make(op, *shape, sequences=shape[0] or None)
    if shape[0] == 0:
        inputs.state = tuple(x[:0] for x in inputs.state)
    spikes, state = inputs.run(backend)
    assert spikes.shape == shape
    for before, after in zip(inputs.state, state, strict=True):
        assert after.shape == before.shape
        if shape[1] == 0:
            assert torch.equal(before, after)
    (spikes.sum() + sum(x.sum() for x in state)).backward()
    if shape[1] == 0:
        assert torch.equal(inputs.state[0].grad, torch.ones_like(inputs.state[0]))


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_packed_with_no_steps_at_all(op, backend):
    inputs = make(op, 1, 0, 3, sequences=2)
    spikes, state = inputs.run(backend, cu_seqlens=torch.tensor([0, 0, 0], dtype=torch.int32))
    assert spikes.shape == (1, 0, 3)
    assert all(torch.equal(x, y) for x, y in zip(state, inputs.state, strict=True))


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_scalar_coefficients_get_scalar_gradients(op, backend):
    inputs = make(op, 2, 20, 4, **OPTIONS[op][1])
    inputs.coefficients = {k: v.detach()[1].clone().requires_grad_() for k, v in inputs.coefficients.items()}
    spread = {k: v.detach().expand(4).clone().requires_grad_() for k, v in inputs.coefficients.items()}
    other = Inputs(op, inputs.current, spread, inputs.state, inputs.kwargs)
    for call in (inputs, other):
        call.run(backend)[0].sum().backward()
    for name, leaf in inputs.coefficients.items():
        assert leaf.grad.shape == ()
        torch.testing.assert_close(leaf.grad, spread[name].grad.sum())


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_a_loss_on_the_state_alone_gives_gradients(op, backend):
    inputs = make(op, 2, 20, 4)
    expected = make(op, 2, 20, 4)
    expected.current = inputs.current.detach().clone().requires_grad_()
    expected.coefficients = {k: v.detach().clone().requires_grad_() for k, v in inputs.coefficients.items()}
    expected.state = tuple(x.detach().clone().requires_grad_() for x in inputs.state)
    inputs.run(backend)[1][-1].sum().backward()
    expected.run("reference")[1][-1].sum().backward()
    for name, leaf in inputs.leaves().items():
        other = expected.leaves()[name].grad
        torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf) if other is None else other)
