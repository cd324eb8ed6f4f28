"""The compiler of dynamics against the loop and against a graph that is run without compiling it."""

import functools
from collections import namedtuple

import pytest
import torch
from random_dynamics import COEFFICIENTS, STATES, dynamics_of

from resofire import nn
from resofire.ops import ATan, Rectangle, Sigmoid, Triangle, equation
from resofire.ops.equation import Dynamics, loop, operator
from resofire.ops.equation.adjoint import RULES, adjoint
from resofire.ops.equation.graph import ordered
from resofire.ops.equation.interpret import evaluate
from resofire.ops.equation.trace import BranchError, Untraceable, trace

State, Coefficients = namedtuple("State", STATES), namedtuple("Coefficients", COEFFICIENTS)
PACKED = torch.tensor([0, 7, 7, 40, 101], dtype=torch.int32)
# Spikes of a random graph, so that gradients reach both outputs.
SURROGATES = (ATan(), Triangle(2.0), Sigmoid(3.0), Rectangle(1.5))


def equation_of(seed, features, dtype=torch.float64, surrogate=ATan()):  # noqa: B008 - frozen
    torch.manual_seed(seed)
    c = Coefficients(torch.randn(features, dtype=dtype, requires_grad=True), torch.tensor(0.7, dtype=dtype))
    return Dynamics("Random", dynamics_of(seed), State, c, surrogate)


def results(scan, dynamics, x, state, **options):
    """Spikes, state, and the gradients of x, coefficients and initial state under random weights."""
    x = x.detach().clone().requires_grad_()
    state = State(*(value.clone().requires_grad_() for value in state))
    spikes, last = scan(dynamics, x, state, **options)
    torch.manual_seed(9)
    total = sum((value * torch.randn_like(value)).sum() for value in (spikes, *last))
    inputs = [x, dynamics.coefficients.p, *state]
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [spikes.detach(), *(each.detach() for each in last), *gradients]


SEEDS = [*range(10), *(pytest.param(n, marks=pytest.mark.deep) for n in range(10, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_dynamics_compiled_and_looped_agree(seed):
    features = 5 + seed % 40
    dynamics = equation_of(seed, features, surrogate=SURROGATES[seed % 4])
    x = torch.randn(1, 101, features, dtype=torch.float64)
    state = State(*torch.randn(2, 4, features, dtype=torch.float64))
    options = {"cu_seqlens": PACKED, "reverse": bool(seed % 2)}
    assert equation.why_not_compiled(dynamics, x) is None
    looped = results(loop.scan, dynamics, x, state, **options)
    compiled = results(equation.scan, dynamics, x, state, **options)
    assert looped[0].abs().max() > 0
    for one, other in zip(compiled, looped, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_graph_and_its_adjoint_are_those_of_autograd(seed):
    torch.manual_seed(seed)
    compare_with_autograd(dynamics_of(seed), SURROGATES[seed % 4])


# One function of two values for each rule of the adjoint.
OPERATIONS = {
    "add": lambda x, y: x + 2 * y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "neg": lambda x, y: -x,
    "div": lambda x, y: x / (2 + y * y), "exp": lambda x, y: torch.exp(x), "log": lambda x, y: torch.log(2 + x * x),
    "sqrt": lambda x, y: torch.sqrt(1 + x * x), "sin": lambda x, y: torch.sin(x), "cos": lambda x, y: torch.cos(x),
    "tanh": lambda x, y: torch.tanh(x), "sigmoid": lambda x, y: torch.sigmoid(x),
    "pow": lambda x, y: (1 + x.abs()) ** 1.7, "abs": lambda x, y: torch.abs(x), "minimum": torch.minimum,
    "maximum": torch.maximum, "clamp_min": lambda x, y: torch.clamp(x, min=-0.3),
    "clamp_max": lambda x, y: torch.clamp(x, max=0.4), "where": lambda x, y: torch.where(x > y, x * x, 3 * y),
}  # fmt: skip


@pytest.mark.parametrize("op", OPERATIONS)
def test_the_adjoint_of_every_operation(op):
    def dynamics(current, state, c, spike):
        s = spike(current - 1)
        value = OPERATIONS[op](state.a, state.b)
        return s, {"a": value, "b": c.p * value + c.q * s}

    torch.manual_seed(0)
    program = compare_with_autograd(dynamics, ATan())
    assert op in {node.op for node in ordered(program.following.values())}
    assert set(OPERATIONS) == set(RULES)


def compare_with_autograd(dynamics, surrogate):
    """The traced graph and its adjoint, run by the interpreter, against the function under autograd."""
    program = trace(dynamics, STATES, COEFFICIENTS, "Random")
    names = ("current", "state.a", "state.b", "c.p", "c.q")
    inputs = {name: torch.randn(64, dtype=torch.float64, requires_grad=True) for name in names}
    current, a, b, p, q = inputs.values()
    arguments = []

    def spike(x):
        arguments.append(x)
        return loop.spike(x, surrogate)

    spikes, following = dynamics(current, State(a, b), Coefficients(p, q), spike)
    outputs = [spikes, *(following[name] for name in STATES)]
    nodes = [program.spikes, *(program.following[name] for name in STATES)]
    with torch.no_grad():
        for one, other in zip(evaluate(nodes, inputs), outputs, strict=True):
            torch.testing.assert_close(one, other.expand(64))
    seeds = [torch.randn(64, dtype=torch.float64) for _ in outputs]
    expected = torch.autograd.grad(outputs, [*inputs.values()], seeds, allow_unused=True)
    slopes = evaluate(program.arguments, {name: value.detach() for name, value in inputs.items()})
    values = {name: value.detach() for name, value in inputs.items()}
    values |= dict(zip(("grad.spikes", "grad.a", "grad.b"), seeds, strict=True))
    values |= {f"slope.{k}": surrogate.derivative(value) for k, value in enumerate(slopes)}
    back = adjoint(program)
    nodes = (back.current, *back.states.values(), *back.coefficients.values())
    for node, gradient in zip(nodes, expected, strict=True):
        value = torch.zeros(64, dtype=torch.float64) if node is None else evaluate([node], values)[0]
        torch.testing.assert_close(value, torch.zeros_like(value) if gradient is None else gradient)
    return program


@pytest.mark.parametrize("layout", ["plain", "strided", "half", "split", "empty"])
def test_float32_layouts_agree_with_float64(layout):
    dynamics = equation_of(3, 70, torch.float32)
    x = torch.randn(3, 95, 70)
    if layout == "strided":
        x = torch.randn(95, 70, 3).permute(2, 0, 1)
    elif layout == "half":
        x = x.bfloat16()
    elif layout == "empty":
        x = x[:, :0]
    spikes, state = equation.scan(dynamics, x, None)
    expected, last = loop.scan(dynamics, x, None)
    if layout == "split":
        first, between = equation.scan(dynamics, x[:, :40], None)
        rest, state = equation.scan(dynamics, x[:, 40:], between)
        spikes = torch.cat([first, rest], 1)
    assert spikes.dtype == x.dtype
    # A potential within rounding of a threshold may fall on either side, and everything after it differs.
    same = (spikes.float() - expected.float()).abs().flatten(0, 1).sum(0) < 1e-3
    assert same.float().mean() > 0.95
    for one, other in zip(state, last, strict=True):
        torch.testing.assert_close(one[:, same], other[:, same], rtol=1e-3, atol=1e-3)


def test_results_do_not_depend_on_threads():
    dynamics = equation_of(4, 300, torch.float32)
    x, state = torch.randn(5, 200, 300), State(*torch.zeros(2, 5, 300))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = results(equation.scan, dynamics, x, state)
        torch.set_num_threads(2)
        two = results(equation.scan, dynamics, x, state)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def plain(current, state, c, spike):
    return spike(current - 1), {}


def traced(function, states=()):
    return trace(function, states, (), "Own")


def test_what_cannot_be_compiled_is_named(subtests):
    cases = [
        (lambda i, s, c, spike: (spike(torch.erf(i)), {}), "they use torch.erf"),
        (lambda i, s, c, spike: (spike(i.cumsum(0)), {}), r"they use \.cumsum"),
        (lambda i, s, c, spike: (spike(i * torch.ones(3)), {}), "a tensor that is no coefficient"),
        (lambda i, s, c, spike: (spike(2.0**i), {}), "unsupported operand"),
        (lambda i, s, c, spike: (i, {}), "they never call spike"),
        (lambda i, s, c, spike: spike(i), r"do not return \(spikes, \{state: value\}\)"),
    ]
    for function, reason in cases:
        with subtests.test(reason), pytest.raises(Untraceable, match=reason):
            traced(function)
    refused = [
        (lambda i, s, c, spike: (spike(i if i > 0 else -i), {}), "branch on a value"),
        (lambda i, s, c, spike: (spike(max(i, 0)), {}), "branch on a value"),
        (lambda i, s, c, spike: (spike(float(i) - 1), {}), "turn a value into a Python number"),
        (lambda i, s, c, spike: (spike(i - i.item()), {}), "turn a value into a Python number"),
    ]
    for function, reason in refused:
        with subtests.test(reason), pytest.raises(BranchError, match=f"Own: dynamics must not {reason}"):
            traced(function)


def test_equal_programs_share_a_key_and_expressions_are_computed_once():
    one = traced(lambda i, s, c, spike: (spike(i * 2 - 1), {"u": i * 2 + (i * 2) * s.u}), ("u",))
    two = traced(lambda i, s, c, spike: (spike(i * 2.0 - 1), {"u": i * 2 + (i * 2) * s.u}), ("u",))
    assert one.key == two.key != traced(plain).key
    nodes = ordered([one.spikes, *one.following.values()])
    assert sum(node.op == "mul" for node in nodes) == 2


def operands(dynamics, x, cu_seqlens=None):
    key = operator.register(equation.program_of(dynamics), "Random")
    batch = x.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    rows = torch.stack([value.detach().expand(x.shape[2]) for value in dynamics.coefficients]).requires_grad_()
    state = torch.randn(2, batch, x.shape[2], dtype=x.dtype, requires_grad=True)
    return x.requires_grad_(), rows, state, cu_seqlens, key, "ATan", [2.0], False, [True, True]


def test_torch_accepts_the_operators():
    dynamics = equation_of(5, 9)
    for bounds in (None, PACKED):
        x = torch.randn(2 if bounds is None else 1, 101, 9, dtype=torch.float64)
        torch.library.opcheck(operator.forward, operands(dynamics, x, bounds))


def test_kernels_are_kept_on_disk_by_their_graph(tmp_path, monkeypatch):
    from numba.core import config

    from resofire.ops.equation import cpu, emit

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu, "_kernels", {})
    empty = namedtuple("Empty", ())
    hits = []
    for factor in (3.25, 3.25, 3.5):
        cpu._kernels.clear()
        emit.compiled.cache_clear()
        function = functools.partial(scaled, factor=factor)
        spikes, _ = equation.scan(Dynamics("Scaled", function, empty, empty(), ATan()), torch.ones(1, 3, 2), None)
        assert spikes.all()
        (kernel,) = cpu._kernels.values()
        hits.append(sum(kernel.stats.cache_hits.values()))
    assert hits == [0, 1, 0]
    assert len(list(tmp_path.rglob("*.nbi"))) == 2


def scaled(current, state, c, spike, factor):
    return spike(factor * current - 1), {}


class OnePole(nn.Neuron):
    states = ("u",)

    def coefficients(self):
        return {"beta": torch.tensor(0.9)}

    @staticmethod
    def dynamics(current, state, c, spike):
        u = c.beta * state.u + current
        s = spike(u - 1)
        return s, {"u": u - s.detach()}


class Branches(OnePole):
    @staticmethod
    def dynamics(current, state, c, spike):
        s = spike(current - 1 if current > 0 else current)
        return s, {"u": s}


def test_a_neuron_that_branches_is_refused_when_it_is_built():
    with pytest.raises(ValueError, match=r"^Branches: dynamics must not branch on a value .*; use torch.where$"):
        Branches(3)


# torch itself still uses what it deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_neurons_compile_without_graph_breaks_and_export():
    neuron, x = OnePole(6), torch.randn(2, 20, 6)
    spikes = neuron(x)
    assert torch.equal(torch.compile(neuron, fullgraph=True, backend="aot_eager")(x), spikes)
    exported = torch.export.export(neuron, (x,)).module()
    assert torch.equal(exported(x), spikes)
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(neuron, (x,), (x,))
