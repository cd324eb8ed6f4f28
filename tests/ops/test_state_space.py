"""The state space as a fused scan: against its loop in float64, the FFT, and what torch asks of an operator."""

import shutil

import pytest
import torch
from looped import loop_over

from resofire.models.baselines import S4DConfig
from resofire.models.baselines.state_space import StateSpace
from resofire.ops.neuron_scan import CHUNK
from resofire.ops.state_space import _scan, _scan_backward, reference, state_space

LENGTHS = (1, 63, 0, 1000, CHUNK, CHUNK + 1)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def bounds(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def make(steps, lanes, pairs, ways, batch=1):
    """x, Ā, w, D and, both ways, w', in float64; decays from fast to 5,000 steps."""
    size, angle = 1 - 10 ** (-3.7 * torch.rand(pairs, lanes).double() - 0.01), 3 * torch.rand(pairs, lanes).double()
    decay = torch.stack((size * angle.cos(), size * angle.sin()))
    x, through = torch.randn(batch, steps, lanes).double(), torch.randn(lanes).double()
    weights = torch.randn(ways, 2, pairs, lanes).double()
    return [x, decay, weights[0], through, *weights[1:]]


def results(function, tensors, dtype, cu_seqlens=None, state=None):
    """y, the last state, and the gradients of all inputs."""
    x, decay, weight, through, *ahead = leaves = [each.to(dtype).requires_grad_() for each in tensors]
    options = {"ahead": ahead[0]} if ahead else {}
    if state is not None:
        options["state"] = state.to(dtype).requires_grad_()
        leaves.append(options["state"])
    y, last = function(x, decay, weight, through, cu_seqlens=cu_seqlens, **options)
    noise = torch.Generator().manual_seed(1)
    loss = sum((each * torch.randn(each.shape, generator=noise).to(dtype)).sum() for each in (y, last))
    return [y.detach(), last.detach(), *torch.autograd.grad(loss, leaves)]


def assert_near(got, expected, tolerance):
    """Every tensor to within `tolerance` of its largest value."""
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        scale = theirs.abs().max().clamp(min=1e-30) if theirs.numel() else 1.0
        torch.testing.assert_close(ours.double() / scale, theirs / scale, rtol=0, atol=tolerance)


@dtypes
@pytest.mark.parametrize("ways", [1, 2])
@loop_over("size", [(5, 3), (37, 8), (32, 1)])
def test_packed_sequences_equal_the_loop(size, ways, dtype):
    lanes, pairs = size
    tensors = make(sum(LENGTHS), lanes, pairs, ways)
    state = torch.randn(2, pairs, len(LENGTHS), lanes).double() if ways == 1 else None
    options = {"cu_seqlens": bounds(LENGTHS), "state": state}
    expected = results(reference.state_space, tensors, torch.float64, **options)
    assert_near(results(state_space, tensors, dtype, **options), expected, TOLERANCE[dtype])


@dtypes
@pytest.mark.parametrize("ways", [1, 2])
@loop_over("length", [1, 63, 1000])
def test_batches_equal_the_loop(length, ways, dtype):
    tensors = make(length, 35, 2, ways, batch=3)
    expected = results(reference.state_space, tensors, torch.float64)
    assert_near(results(state_space, tensors, dtype), expected, TOLERANCE[dtype])


@dtypes
def test_long_sequences_of_slow_states(dtype):
    """4,096 steps, time constants up to 5,000 of them."""
    tensors = make(4096, 33, 8, 2)
    expected = results(reference.state_space, tensors, torch.float64)
    assert_near(results(state_space, tensors, dtype), expected, TOLERANCE[dtype])


def test_reversed_it_is_the_other_way_one_step_ahead():
    """With w = 0 and D = 0 only w' is left: the causal scan of the reversed sequence, shifted by a step."""
    x, decay, _, through, ahead = make(70, 6, 3, 2)
    zero = torch.zeros_like
    y, _ = state_space(x, decay, zero(ahead), zero(through), ahead=ahead)
    causal, _ = state_space(x.flip(1), decay, ahead, zero(through))
    torch.testing.assert_close(y[:, :-1], causal.flip(1)[:, 1:])
    assert not y[:, -1].any()


@loop_over("cut", [1, CHUNK, 50, 99])
def test_split_anywhere_it_is_the_same(cut):
    x, decay, weight, through = make(100, 7, 5, 1, batch=2)
    whole, last = state_space(x, decay, weight, through)
    first, state = state_space(x[:, :cut], decay, weight, through)
    second, end = state_space(x[:, cut:], decay, weight, through, state=state)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(end, last, rtol=0, atol=1e-12)


def test_any_strides_and_an_expanded_gradient():
    x, decay, weight, through = make(50, 36, 4, 1, batch=2)
    strided = torch.empty(36, 50, 2, dtype=torch.float64).permute(2, 1, 0).copy_(x)
    every_other = torch.zeros(2, 50, 72, dtype=torch.float64)
    every_other[..., ::2] = x
    expected, _ = state_space(x, decay, weight, through)
    for same in (strided, every_other[..., ::2]):
        same = same.detach().requires_grad_()
        y, _ = state_space(same, decay, weight, through)
        torch.testing.assert_close(y, expected)
        (grad,) = torch.autograd.grad(y.sum(), same)
        (wanted,) = torch.autograd.grad(reference.state_space(same, decay, weight, through)[0].sum(), same)
        torch.testing.assert_close(grad, wanted)


def test_the_last_state_alone_has_a_gradient():
    tensors = make(40, 3, 2, 1)
    grads = []
    for function in (state_space, reference.state_space):
        leaves = [each.clone().requires_grad_() for each in tensors[:2]]
        _, last = function(*leaves, *tensors[2:])
        grads.append(torch.autograd.grad(last.square().sum(), leaves))
    assert_near(*grads, 1e-9)


def test_results_do_not_depend_on_the_number_of_threads():
    tensors, threads = make(sum(LENGTHS), 70, 4, 2), torch.get_num_threads()
    try:
        outcomes = []
        for count in (1, 3):
            torch.set_num_threads(count)
            outcomes.append(results(state_space, tensors, torch.float32, bounds(LENGTHS)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, three) for one, three in zip(*outcomes, strict=True))


@dtypes
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "both-ways"])
def test_scan_and_fft_are_two_ways_to_the_same_layer(bidirectional, dtype):
    space, lengths = StateSpace(19, states=16, bidirectional=bidirectional).double(), (1, 63, 1000, 4096)
    x, grad = torch.randn(2, 1, sum(lengths), 19).double()
    outcomes = []
    for path, kind in (("convolved", torch.float64), ("scanned", dtype)):
        own = x.to(kind).requires_grad_()
        y = getattr(space.to(kind), path)(own, bounds(lengths))
        outcomes.append([y.detach(), *torch.autograd.grad(y, [own, *space.parameters()], grad.to(kind))])
    expected, got = outcomes
    assert_near(got, expected, 1e-9 if dtype == torch.float64 else 2e-5)


def test_a_layer_takes_half_precision_and_autocast():
    space, x = StateSpace(6, states=4), torch.randn(2, 30, 6)
    expected = space(x)
    y = space(x.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=0.05, atol=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(space(x), expected)


@dtypes
@pytest.mark.parametrize("ways", [1, 2])
def test_opcheck(ways, dtype):
    lengths = (5, 0, 40)
    x, decay, weight, through, *ahead = (each.to(dtype) for each in make(sum(lengths), 5, 3, ways))
    weights, state = torch.stack((weight, *ahead)), torch.randn(2, 3, 3, 5, dtype=dtype)
    rows = [each.detach().requires_grad_() for each in (x, decay, weights, through, state)]
    torch.library.opcheck(_scan, (*rows, bounds(lengths)))
    y, last, kept = _scan(x, decay, weights, through, state, bounds(lengths))
    torch.library.opcheck(
        _scan_backward, (torch.ones_like(y), torch.ones_like(last), x, decay, weights, through, kept, bounds(lengths))
    )


# torch's own compiler still goes through what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("engine", ["aot_eager", "inductor"])
def test_a_block_compiles_in_one_graph(engine):
    if engine == "inductor" and shutil.which("g++") is None:
        pytest.skip("torch's inductor needs g++")
    block, cu_seqlens = S4DConfig(states=6, bidirectional=True).build(5), bounds((4, 0, 36))
    u = torch.randn(1, 40, 5, requires_grad=True)
    outcomes = []
    for function in (block, torch.compile(block, fullgraph=True, backend=engine)):
        y = function(u, cu_seqlens=cu_seqlens)
        outcomes.append([y.detach(), *torch.autograd.grad(y.square().sum(), [u, *block.parameters()])])
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_exports_with_a_free_length():
    space = StateSpace(6, states=4, bidirectional=True)
    length = torch.export.Dim("length", min=2)
    program = torch.export.export(space, (torch.randn(2, 40, 6),), dynamic_shapes={"x": {1: length}})
    assert "resofire.state_space" in str(program.graph)
    longer = torch.randn(2, 97, 6)
    torch.testing.assert_close(program.module()(longer), space(longer))


def test_wrong_arguments_are_named_before_memory_is_touched():
    x, decay, weight, through = (each.float() for each in make(10, 4, 2, 1))
    with pytest.raises(ValueError, match=r"state_space: weight must be torch.float32 \[2, 2, 4\], got .* \[2, 3, 4\]"):
        state_space(x, decay, torch.randn(2, 3, 4), through)
    with pytest.raises(ValueError, match=r"state_space: through must be torch.float32 \[4\], got .* \[3\]"):
        state_space(x, decay, weight, through[:3])
    with pytest.raises(ValueError, match="state must be None with ahead"):
        state_space(x, decay, weight, through, ahead=weight, state=torch.zeros(2, 2, 1, 4))
    with pytest.raises(ValueError, match="state_space: cu_seqlens must run from 0 to 10, got 0 to 9"):
        state_space(x, decay, weight, through, cu_seqlens=bounds((4, 5)))
    kept = _scan(x, decay, weight[None], through, torch.zeros(2, 2, 1, 4), None)[2]
    with pytest.raises(ValueError, match=r"state_space: kept must be .*, got"):
        _scan_backward(x, None, x, decay, weight[None], through, kept[:, :0], None)
    with pytest.raises(ValueError, match=r"state_space: grad_y must be .*, got .* \[1, 9, 4\]"):
        _scan_backward(x[:, 1:], None, x, decay, weight[None], through, kept, None)


def test_a_second_derivative_is_refused():
    x, decay, weight, through = make(10, 4, 2, 1)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(state_space(x, decay, weight, through)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivative .* state_space"):
        grad.sum().backward()
