"""Every neuron that is compiled, against the loop under autograd: spikes, states, gradients, in every kind of call."""

import copy
import itertools
import warnings

import pytest
import torch

from resofire import nn
from resofire.nn import SDTCM
from resofire.ops import ATan, Rectangle, Sigmoid, equation
from resofire.ops.equation import loop, operator, recurrent
from resofire.ops.surrogate import spike

T, N = 70, 37
PACKED = torch.tensor([0, 7, 7, 40, 70], dtype=torch.int32)
# The config, and the scale of the input at which it fires.
NEURONS = {
    "LIF": (nn.LIFConfig(tau=(2.0, 8.0), train_tau=True), 1.0),
    "LIF, hard reset": (nn.LIFConfig(reset="hard", reset_gradient="full"), 1.0),
    "PRF": (nn.PRFConfig(delta=(0.1, 0.5)), 5.0),
    "PRF, soft reset": (nn.PRFConfig(delta=(0.1, 0.5), reset="soft", reset_gradient="full"), 5.0),
    "PLIF": (nn.PLIF.config(), 1.5),
    "GLIF": (nn.GLIF.config(), 1.0),
    "TCLIF": (nn.TCLIF.config(), 1.0),
    "ALIF": (nn.ALIF.config(), 2.0),
    "AHP": (nn.AHP.config(train=True), 1.0),
    "BRF": (nn.BRF.config(), 1.5),
    "BHRF": (nn.BHRF.config(), 1.5),
    "DRF": (nn.DRF.config(resonators=3, history=2), 1.5),
    "SlidingPSN": (nn.SlidingPSN.config(order=5), 1.0),
    "Recurrent LIF": (nn.Recurrent.config(neuron=nn.LIF), 1.0),
    "Recurrent PRF": (nn.Recurrent.config(neuron=nn.PRFConfig(delta=(0.1, 0.5), reset="soft")), 5.0),
    "Recurrent ALIF": (nn.Recurrent.config(neuron=nn.ALIF), 2.0),
}
RUNS = ("scan: compiled", "prf: auto takes 'scan'", "lif: auto takes 'scan'", "convolution")


def others_deep(*names):
    """All neurons; only those named in `make test`."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.deep) for name in NEURONS]


def built(name, dtype=torch.float64):
    torch.manual_seed(3)
    config, scale = NEURONS[name]
    return config.build(N).to(dtype), scale


def call(scan, neuron, x, state, **options):
    """Spikes, states, and the gradients of input, initial state and parameters under random weights."""
    x = x.detach().clone().requires_grad_()
    state = neuron.state_type(*(value.clone().requires_grad_() for value in state))
    spikes, last = scan(x, state, **options)
    torch.manual_seed(9)
    # Not `randn_like`, which fills memory in the order of its argument's strides.
    total = sum((value * torch.randn(value.shape, dtype=value.dtype)).sum() for value in (spikes, *last))
    inputs = [x, *state, *neuron.parameters()]
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [value.detach() for value in (spikes, *last, *gradients)]


def in_two(scan):
    """The same call in two parts, the state carried from one to the other."""

    def run(x, state, reverse):
        parts = [x[:, :23], x[:, 23:]][:: -1 if reverse else 1]
        first, between = scan(parts[0], state, reverse=reverse)
        second, last = scan(parts[1], between, reverse=reverse)
        return torch.cat([second, first] if reverse else [first, second], 1), last

    return run


@pytest.mark.parametrize("name", NEURONS)
def test_compiled_is_the_loop(name, subtests):
    neuron, scale = built(name)
    for kind, reverse in itertools.product(("whole", "packed", "split"), (False, True)):
        with subtests.test(kind, reverse=reverse):
            packed = kind == "packed"
            x = scale * torch.randn(1 if packed else 3, T, N, dtype=torch.float64)
            assert neuron.explain(x).startswith(RUNS)
            shape = (len(PACKED) - 1 if packed else 3, N)
            state = [0.3 * torch.randn(shape, dtype=torch.float64) for _ in neuron.states]
            options = {"reverse": reverse, **({"cu_seqlens": PACKED} if packed else {})}
            scan = in_two(neuron.scan) if kind == "split" else neuron.scan
            compiled = call(scan, neuron, x, state, **options)
            looped = call(lambda x, s, **o: loop.scan(neuron._equation(x), x, s, **o), neuron, x, state, **options)
            assert 0.01 < looped[0].mean() < 0.9
            assert torch.equal(compiled[0], looped[0])
            for one, other in zip(compiled, looped, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * max(1.0, float(other.abs().max())))


def test_the_psn_is_its_sum_written_out():
    """It is no recurrence; the loop here is over the potentials."""
    torch.manual_seed(0)
    neuron, surrogate = nn.PSN(3, steps=6).double(), Sigmoid(2.0)
    neuron.surrogate = surrogate
    results = []
    for loop_over_time in (False, True):
        torch.manual_seed(1)
        x = (3 * torch.randn(2, 6, 3, dtype=torch.float64)).requires_grad_()
        if loop_over_time:
            terms = [[neuron.weight[t, k] * x[:, k] for k in range(6)] for t in range(6)]
            above = [sum(row) - neuron.threshold[t] for t, row in enumerate(terms)]
            spikes = torch.stack([spike(each, surrogate) for each in above], 1)
        else:
            spikes = neuron(x)
        total = (spikes * torch.randn(spikes.shape, dtype=torch.float64)).sum()
        results.append([spikes.detach(), *torch.autograd.grad(total, [x, neuron.weight, neuron.threshold])])
    assert 0.01 < results[0][0].mean() < 0.9
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    potential = (x, neuron.weight, neuron.threshold)
    torch.autograd.gradcheck(lambda x, *_: neuron._above(x, None, False), potential, fast_mode=True)


@pytest.mark.parametrize("name", NEURONS)
def test_smooth_parts_pass_gradcheck(name):
    """Below the threshold nothing but `spike` is rough; its surrogate is 0 there."""
    neuron, _ = built(name)
    for module in neuron.modules():
        if isinstance(module, nn.Neuron):
            module.surrogate = Rectangle(1e-6)
    trained = [value for value in neuron.parameters() if value.requires_grad]

    def last(x, *values):
        state = neuron.scan(x)[1]
        # Kinked where a state counts spikes: those stay 0.
        return torch.stack([value for value in state if value.requires_grad])

    x = (-1e-3 * torch.rand(2, 5, N, dtype=torch.float64)).requires_grad_()
    assert neuron(x).sum() == 0
    torch.autograd.gradcheck(last, (x, *trained), fast_mode=True)


# torch itself still uses what it deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", [*others_deep("BHRF", "Recurrent ALIF", "PRF", "LIF"), "PSN"])
def test_compiles_in_one_graph_and_exports(name):
    # torch compiles the same function for a few classes only.
    torch._dynamo.reset()
    neuron, scale = (nn.PSN(N, steps=20), 1.5) if name == "PSN" else built(name, torch.float32)
    x = scale * torch.randn(2, 20, N)
    compiled = torch.compile(neuron, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(compiled, neuron(x))
    assert torch.equal(torch.export.export(neuron, (x,)).module()(x), neuron(x))


@pytest.mark.parametrize("name", [each for each in NEURONS if each[:9] not in ("Recurrent", "SlidingPS")])
def test_opcheck(name):
    """Both operators, with the graph of every neuron."""
    neuron, _ = built(name)
    x = torch.randn(1, T, N, dtype=torch.float64, requires_grad=True)
    inner, batch = neuron._equation(x), len(PACKED) - 1
    rows = inner.rows(N).detach().requires_grad_()
    state = torch.randn(len(neuron.states), batch, N, dtype=torch.float64, requires_grad=True)
    key, trained = equation.block_key(inner, x), [value.requires_grad for value in inner.coefficients]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.library.opcheck(operator.forward, (x, rows, state, PACKED, key, "ATan", [2.0], False, trained))


@pytest.mark.parametrize("packed", [False, True])
def test_opcheck_of_feedback(packed):
    neuron, _ = built("Recurrent LIF")
    x = torch.randn(1 if packed else 2, T, N, dtype=torch.float64, requires_grad=True)
    batch = len(PACKED) - 1 if packed else 2
    inner = neuron.neuron._equation(x)
    layer = recurrent.Layer(
        current=x, weight=neuron.feedback.weight, coefficients=inner.rows(N).detach().requires_grad_(),
        state=torch.randn(1, batch, N, dtype=torch.float64, requires_grad=True),
        first=torch.randn(batch, N, dtype=torch.float64, requires_grad=True), cu_seqlens=PACKED if packed else None,
        key=equation.block_key(inner, x), surrogate="ATan", numbers=[2.0], reverse=packed,
        trained=[True, False],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.library.opcheck(recurrent.forward, tuple(layer))


@pytest.mark.parametrize("name", ["LIF", "PRF", "ALIF", "Recurrent LIF"])
def test_expanded_gradients_are_those_of_their_copies(name):
    neuron, scale = built(name, torch.float32)
    x = scale * torch.randn(2, T, N)
    for shape in ((1, 1, 1), (2, 1, 1), (2, T, 1), (2, 1, N)):
        grad = torch.randn(shape).expand(x.shape)
        results = []
        for pull in (grad, grad.contiguous()):
            leaf = x.clone().requires_grad_()
            neuron.zero_grad()
            neuron(leaf).backward(pull)
            results.append([leaf.grad, *(value.grad.clone() for value in neuron.parameters())])
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["ALIF", "BHRF", "GLIF", "DRF"])
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_any_compiled_neuron_runs_in_the_fused_block(name, norm):
    config, _ = NEURONS[name]
    torch.manual_seed(0)
    fused = SDTCM(N, neuron=config, norm=norm, backend="fused", bidirectional=norm == "batch").double()
    parts = copy.deepcopy(fused)
    parts.backend = "reference"
    u = 2 * torch.randn(2, T, N, dtype=torch.float64)
    results = []
    for block in (fused, parts):
        leaf = u.clone().requires_grad_()
        with nn.fire_rates(block) as rates:
            out = block(leaf)
        torch.manual_seed(1)
        (out * torch.randn_like(out)).sum().backward()
        assert rates["token_neuron"] > 0.01
        results.append([out.detach(), leaf.grad, *(value.grad for value in block.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * max(1.0, float(other.abs().max())))


def test_why_a_layer_with_feedback_runs_as_a_loop():
    class Odd(nn.Neuron):
        states = ("u",)

        def coefficients(self):
            return {"beta": torch.tensor(0.9)}

        @staticmethod
        def dynamics(current, state, c, spike):
            u = c.beta * state.u + torch.erf(current)
            return spike(u - 1), {"u": u}

    layer, x = nn.Recurrent(4), torch.randn(1, 3, 4)
    layer.neuron = Odd(4, surrogate=ATan())
    assert "scan: `dynamics` cannot be compiled: they use torch.erf" in layer.explain(x)
    assert layer(x).shape == x.shape
