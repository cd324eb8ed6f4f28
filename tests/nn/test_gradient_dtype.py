"""bfloat16 in the gradient products of the fused block: what it changes, what it leaves alone, where it is refused."""

import copy

import pytest
import torch
import torch.nn.functional as F

from resofire.models import Classifier, ClassifierConfig
from resofire.nn import SDTCM, PRFConfig
from resofire.ops import sdtcm

needs_bfloat16 = pytest.mark.skipif(not sdtcm.has_bfloat16(), reason="this CPU has neither AVX512-BF16 nor AMX")
QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)
CU = torch.tensor([0, 63, 64, 300, 300, 1000], dtype=torch.int32)


def rounded(model: torch.nn.Module) -> torch.nn.Module:
    other = copy.deepcopy(model)
    for block in other.modules():
        if isinstance(block, SDTCM):
            block.gradient_dtype = "bfloat16"
    return other


def gradients(model: torch.nn.Module, loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(7)  # dropout
    loss(model).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@needs_bfloat16
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "both ways"])
def test_weight_gradients_stay_within_one_per_cent(bidirectional):
    torch.manual_seed(0)
    config = ClassifierConfig(
        vocabulary=20, features=96, depth=4, classes=3, dropout=0.1, bidirectional=bidirectional, neuron=QUICK
    )
    model, tokens, labels = Classifier(config), torch.randint(20, (1, 1000)), torch.randint(3, (5,))
    exact, low = (
        gradients(each, lambda net: F.cross_entropy(net(tokens, cu_seqlens=CU), labels))
        for each in (model, rounded(model))
    )
    weights = [name for name in exact if name.endswith("linear.weight")]
    assert len(weights) == 8
    for name in weights:
        error = float((low[name] - exact[name]).norm() / exact[name].norm())
        assert error < 0.01, f"{name}: {error:.2%}"
    whole, whole_low = (torch.cat([grad.flatten() for grad in grads.values()]) for grads in (exact, low))
    assert 0 < float((whole_low - whole).norm() / whole.norm()) < 0.01
    # Behind the last products nothing is rounded.
    assert torch.equal(low["head.weight"], exact["head.weight"])


@needs_bfloat16
def test_only_a_float32_backward_pass_is_rounded():
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        block = SDTCM(40, neuron=QUICK, backend="fused").to(dtype)
        u, grad = (torch.randn(2, 63, 40, dtype=dtype) for _ in range(2))
        exact, low = (gradients(each, lambda net: (net(u) * grad).sum()) for each in (block, rounded(block)))  # noqa: B023
        assert torch.equal(rounded(block)(u), block(u))
        assert torch.equal(low["token_linear.weight"], exact["token_linear.weight"]) == (dtype == torch.float64)


@needs_bfloat16
def test_the_same_bits_again():
    block, u = rounded(SDTCM(40, neuron=QUICK)), torch.randn(2, 700, 40)
    first, second = (gradients(block, lambda net: net(u).square().sum()) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_refused_by_name_where_the_cpu_lacks_it(monkeypatch):
    monkeypatch.setattr(sdtcm, "has_bfloat16", lambda: False)
    pattern = (
        "SDTCM: gradient_dtype must be 'float32' on this CPU, which has neither AVX512-BF16 nor AMX, got 'bfloat16'"
    )
    with pytest.raises(ValueError, match=pattern):
        SDTCM(4, gradient_dtype="bfloat16")
    block = SDTCM(4)
    with pytest.raises(ValueError, match=pattern):
        block.gradient_dtype = "bfloat16"
    assert block.gradient_dtype == "float32"


def test_another_name_is_refused():
    with pytest.raises(ValueError, match=r"SDTCM: gradient_dtype must be one of 'float32'.*, got 'float16'"):
        SDTCM(4, gradient_dtype="float16")
