"""Forward-mode differentiation is refused by every operator: a custom operator would give a tangent of zero."""

import pytest
import torch
from looped import loop_over
from neurons import BACKENDS, IDS

from resofire.nn import SDTCM
from resofire.ops import lif, moments, prf, spike_linear
from resofire.ops.narrow_linear import narrow_linear
from resofire.ops.state_space import state_space

# torch scripts its own formulas at the first use of forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

X = torch.rand(2, 5, 3)
WEIGHT = torch.rand(4, 3)
OPERATORS = {
    "moments": (lambda x: moments(x)[0], X),
    "narrow_linear": (lambda x: narrow_linear(x, WEIGHT, torch.zeros(4)), X),
    "spike_linear": (lambda w: spike_linear((X > 0.5).float(), w, backend="events"), WEIGHT),
    "state_space": (lambda x: state_space(x, torch.rand(2, 4, 3), torch.rand(2, 4, 3), torch.rand(3))[0], X),
    "SDTCM": (SDTCM(3), X),
}


@loop_over("name", OPERATORS)
def test_an_operator_refuses_forward_mode(name):
    function, primal = OPERATORS[name]
    with pytest.raises(RuntimeError, match=r"forward-mode differentiation .* is not supported; use reverse mode"):
        torch.func.jvp(function, (primal,), (torch.ones_like(primal),))


@loop_over("differentiated", ["current", "coefficient", "state"])
@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_a_neuron_refuses_forward_mode(op, backend, differentiated):
    values = {"current": X, "coefficient": torch.tensor(0.9), "state": torch.zeros(2, 3)}

    def run(x):
        current, coefficient, state = (values | {differentiated: x}).values()
        if op == "lif":
            return lif(current, coefficient, state=(state,), backend=backend)[0]
        return prf(current, coefficient, 0.1, 0.5, state=(state, torch.zeros(2, 3)), backend=backend)[0]

    primal = values[differentiated]
    with pytest.raises(RuntimeError, match=r"forward-mode|does not implement|jvp"):
        torch.func.jvp(run, (primal,), (torch.ones_like(primal),))
