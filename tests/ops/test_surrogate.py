"""Surrogates: area, agreement of their forms, and one written by a user."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from looped import loop_over
from neurons import make

from resofire.ops import ATan, Rectangle, Sigmoid, Surrogate, Triangle, lif
from resofire.ops.surrogate import like, spike

BUILT_IN = [ATan(), ATan(3.5), Triangle(), Triangle(0.6), Sigmoid(), Sigmoid(1.5), Rectangle(), Rectangle(0.4)]


@dataclass(frozen=True)
class Lorentz(Surrogate):
    """A user's own, on single numbers, with a branch: the way most people would write it."""

    width: float = 1.0
    height: float = 2.0

    def derivative(self, x):
        return torch.where(x > 0, self.height, 1.0) / (1 + (x / self.width) ** 2)

    @staticmethod
    def numba(x, width, height):
        top = height if x > 0 else 1.0
        return top / (1 + (x / width) ** 2)


@dataclass(frozen=True)
class Square(Surrogate):
    """A user's own on whole vectors, without any number."""

    vector: ClassVar[bool] = True

    def derivative(self, x):
        return 1 / (1 + x * x) ** 2

    @staticmethod
    def numba(x):
        y = like(x, 1) + x * x
        return like(x, 1) / (y * y)


@dataclass(frozen=True)
class TorchOnly(Surrogate):
    def derivative(self, x):
        return torch.exp(-x * x)


@loop_over("surrogate", BUILT_IN)
def test_area_is_one_and_the_numba_form_is_the_same(surrogate):
    x = torch.linspace(-400, 400, 8_000_001, dtype=torch.float64)
    assert abs(torch.trapezoid(surrogate.derivative(x), x).item() - 1) < 2e-3
    for value in (-2.5, -0.3, -1e-9, 0.0, 0.19, 0.7, 40.0, 1e200):
        expected = surrogate.derivative(torch.tensor(value, dtype=torch.float64)).item()
        assert math.isclose(surrogate.numba(value, *surrogate.numbers), expected, rel_tol=1e-12, abs_tol=1e-300)


@loop_over("surrogate", [*BUILT_IN, Lorentz(0.7), Square()])
@pytest.mark.parametrize("backend", ["scan", "fft"])
def test_each_surrogate_in_each_backend(surrogate, backend):
    inputs = make("prf", 2, 45, 35, surrogate=surrogate)
    grads = []
    for name in ("reference", backend):
        call = inputs.to(torch.float64)
        call.run(name)[0].sum().backward()
        grads.append(call.leaves())
    for name, leaf in grads[1].items():
        torch.testing.assert_close(leaf.grad, grads[0][name].grad, rtol=1e-9, atol=1e-9)


def test_a_surrogate_without_a_fused_form_says_so_and_auto_goes_on():
    inputs = make("lif", 1, 8, 2, surrogate=TorchOnly())
    with pytest.raises(RuntimeError, match="'scan' cannot run this call: surrogate TorchOnly has no `numba` form"):
        inputs.run("scan")
    with pytest.raises(RuntimeError, match="'triton' cannot run this call: surrogate TorchOnly has no `triton` form"):
        inputs.run("triton")
    spikes, _ = inputs.run("auto")
    spikes.sum().backward()
    assert inputs.current.grad is not None


def test_a_surrogate_without_a_derivative_says_so():
    class Nothing(Surrogate):
        pass

    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="surrogate Nothing does not define derivative"):
        spike(x, Nothing()).sum().backward()


def test_a_tie_fires():
    assert spike(torch.tensor([-1e-30, 0.0, 1e-30]), ATan()).tolist() == [0, 1, 1]


def test_the_kernel_cache_notices_a_change_in_what_kernels_take_from_elsewhere(monkeypatch):
    from resofire.ops.neuron_scan import kernels

    before = kernels.fingerprint(ATan.numba)
    assert before == kernels.fingerprint(ATan.numba)
    assert before != kernels.fingerprint(Triangle.numba)
    monkeypatch.setattr(kernels, "CHUNK", 64)
    assert before != kernels.fingerprint(ATan.numba)


def slopes(surrogate, backend):
    current = torch.linspace(-2, 2, 48, dtype=torch.float64).reshape(1, 12, 4).requires_grad_()
    lif(current, 0.5, surrogate=surrogate, backend=backend)[0].sum().backward()
    return current.grad


def test_names_do_not_get_in_each_others_way():
    """A user's class may be called as ours is, or be defined again: each instance keeps its own forms."""

    def define(factor):
        @dataclass(frozen=True)
        class ATan(Surrogate):
            def derivative(self, x):
                return factor / (1 + x * x)

            @staticmethod
            def numba(x):
                return factor / (1 + x * x)

        return ATan()

    before = slopes(ATan(), "scan")
    first, second = define(1.0), define(3.0)
    assert torch.equal(slopes(ATan(), "scan"), before)
    for surrogate in (first, second, first):
        torch.testing.assert_close(slopes(surrogate, "scan"), slopes(surrogate, "reference"))
    with pytest.raises(RuntimeError, match="has no `triton` form"):
        slopes(first, "triton")


def test_another_derivative_does_not_inherit_the_old_forms():
    @dataclass(frozen=True)
    class Steep(ATan):
        def derivative(self, x):
            return 5 * super().derivative(x)

    with pytest.raises(RuntimeError, match="surrogate Steep has no `numba` form"):
        slopes(Steep(), "scan")
    torch.testing.assert_close(slopes(Steep(), "auto"), slopes(Steep(), "reference"))


def test_a_compiled_form_and_a_helper_are_fine():
    import numba

    @numba.njit
    def helper(x):
        return 1 / (1 + x * x)

    @dataclass(frozen=True)
    class Helped(Surrogate):
        numba: ClassVar = helper

        def derivative(self, x):
            return 1 / (1 + x * x)

    torch.testing.assert_close(slopes(Helped(), "scan"), slopes(Helped(), "reference"))


def test_a_surrogate_of_text_is_refused():
    @dataclass(frozen=True)
    class Text(Surrogate):
        width: str = "wide"

        def derivative(self, x):
            return x

    with pytest.raises(TypeError, match="Text: width must be a number, got 'wide'"):
        lif(torch.zeros(1, 2, 3), 0.5, surrogate=Text())
