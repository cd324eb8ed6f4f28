"""The SD-TCM block as one operator against the same composed of its parts: output, gradients, rates, statistics."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from fused_blocks import CU, LEAKY, QUICK, SOFT, Lorentz, assert_same, compare, run, twins

from resofire.nn import fire_rates
from resofire.ops import ATan, Rectangle, Sigmoid, Triangle
from resofire.ops.sdtcm import cpu as host

NO_BIAS = ("gradient of channel_linear.bias",)
# Each option beside several others: not all of their combinations.
CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "eval": {"training": False},
    "against the scan": {"parts": "scan", "bidirectional": True},
    "5 features, both ways": {"features": 5, "bidirectional": True, "amplitude": "both"},
    "64 features, post-norm": {"features": 64, "prenorm": False, "amplitude": "tn", "nought": NO_BIAS},
    "128 features, packed": {"features": 128, "cu_seqlens": CU},
    "100 features, both ways, packed": {"features": 100, "bidirectional": True, "cu_seqlens": CU, "amplitude": "none"},
    "128 features, both ways, eval": {"features": 128, "bidirectional": True, "training": False, "amplitude": "both"},
    "no norm": {"norm": "none", "amplitude": "none", "features": 64},
    "post-norm, both ways, eval": {"prenorm": False, "bidirectional": True, "training": False, "features": 64},
    "soft reset": {"neuron": SOFT, "amplitude": "tn"},
    "soft reset, full gradient": {"neuron": replace(SOFT, reset_gradient="full"), "bidirectional": True},
    "soft reset, full, no norm, packed": {
        "neuron": replace(SOFT, reset_gradient="full", train_tau=True), "norm": "none", "cu_seqlens": CU, "features": 5,
    },
    "LIF": {"neuron": LEAKY},
    "LIF, trained tau, both ways": {"neuron": replace(LEAKY, train_tau=True), "bidirectional": True, "features": 5},
    "LIF, hard reset, full gradient": {
        "neuron": replace(LEAKY, reset="hard", reset_gradient="full", train_tau=True), "prenorm": False,
        "nought": NO_BIAS,
    },
    "LIF, hard reset, packed": {"neuron": replace(LEAKY, reset="hard"), "cu_seqlens": CU, "norm": "none"},
    "LIF, no reset, eval": {"neuron": replace(LEAKY, reset="none"), "training": False, "features": 64},
    "dropout": {"dropout": 0.3, "features": 64},
    "dropout, both ways, packed": {"dropout": 0.5, "bidirectional": True, "amplitude": "both", "cu_seqlens": CU},
    "dropout, post-norm": {"dropout": 0.2, "prenorm": False, "amplitude": "tn", "neuron": LEAKY},
    "dropout in eval does nothing": {"dropout": 0.5, "training": False},
    "penalty on rates": {"penalty": 30.0},
    "penalty on rates, both ways, dropout, packed": {
        "penalty": 30.0, "bidirectional": True, "dropout": 0.3, "cu_seqlens": CU, "amplitude": "both", "features": 5,
    },
    "penalty on rates, LIF": {"penalty": 30.0, "neuron": replace(LEAKY, reset_gradient="full"), "training": False},
    "sigmoid and triangle": {"neuron": replace(QUICK, surrogate=Sigmoid(3.0)), "surrogate": Triangle(2.0)},
    "triangle and sigmoid, full gradient": {
        "neuron": replace(LEAKY, surrogate=Triangle(1.5), reset_gradient="full"), "surrogate": Sigmoid(),
    },
    "rectangle and a user's own": {"neuron": replace(SOFT, surrogate=Rectangle(2.0)), "surrogate": Lorentz(0.5)},
    "a user's own and another ATan": {"neuron": replace(QUICK, surrogate=Lorentz()), "surrogate": ATan(3.0)},
    "another spatial threshold": {"spatial_threshold": -0.25, "features": 5},
    # The first step knows nothing of φ, which decays and turns what was before.
    "one step": {"shape": (40, 1), "nought": ("gradient of token_neuron.log_theta",)},
    "longer than a chunk": {"shape": (2, 300), "features": 5, "neuron": SOFT},
    "one feature": {"features": 1, "shape": (20, 30), "bidirectional": True},
}  # fmt: skip


BOTH = (torch.float64, torch.float32)
# A user's own surrogate takes seconds to compile, for each type: one of the two is deep.
COMPILED = {"rectangle and a user's own": torch.float64, "a user's own and another ATan": torch.float32}
CASES_AND_TYPES = [
    *(pytest.param(case, (COMPILED[case],) if case in COMPILED else BOTH, id=case) for case in CASES),
    *(
        pytest.param(case, tuple({*BOTH} - {dtype}), marks=pytest.mark.deep, id=f"{case}, the other type")
        for case, dtype in COMPILED.items()
    ),
]


@pytest.mark.parametrize(("case", "dtypes"), CASES_AND_TYPES)
def test_the_fused_block_is_the_composed_one(case, dtypes, subtests):
    settings = {"features": 37, **CASES[case]}
    if settings.get("cu_seqlens") is not None:
        settings["shape"] = (1, 90)
    for dtype in dtypes:
        with subtests.test(str(dtype)):
            compare(dtype=dtype, **settings)


@pytest.mark.parametrize("limit", [1, 40_000], ids=["a sequence at a time", "some sequences"])
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_in_spans_it_is_the_same(packed, limit, monkeypatch):
    settings = {"shape": (1, 90), "cu_seqlens": CU} if packed else {"shape": (7, 33)}
    settings |= {"bidirectional": True, "amplitude": "both", "dropout": 0.3, "penalty": 30.0}
    whole = compare(64, torch.float64, **settings)
    assert host.SPAN_BYTES > 90 * 7 * 64 * 8
    monkeypatch.setattr(host, "SPAN_BYTES", limit)
    apart = compare(64, torch.float64, **settings)
    assert torch.equal(apart["output"], whole["output"])
    assert apart["rates"] == whole["rates"]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_the_same_bits_again_with_one_thread_and_two(packed, threads):
    """The output does not depend on the number of threads; gradients are put together from the threads' sums."""
    bounds = torch.tensor([0, 0, 700, 701, 1200], dtype=torch.int32) if packed else None
    settings = {"shape": (1, 1200) if packed else (4, 300), "cu_seqlens": bounds, "features": 40, "dropout": 0.2}
    settings |= {"bidirectional": True, "penalty": 30.0, "parts": "scan", "dtype": torch.float64}
    found = []
    for count in (1, 2, 2):
        threads(count)
        found.append(compare(**settings))
    for name, value in found[2].items():
        assert torch.equal(found[1][name], value) if name != "rates" else found[1][name] == value, name
    assert torch.equal(found[0]["output"], found[2]["output"])


@pytest.mark.parametrize("layout", ["time first", "lane first", "every other", "expanded"])
def test_any_strides(layout):
    made, twin = twins(37, torch.float64)
    u = torch.randn(3, 33, 37, dtype=torch.float64)
    u = {
        "time first": lambda: u.transpose(0, 1).contiguous().transpose(0, 1),
        "lane first": lambda: u.mT.contiguous().mT,
        "every other": lambda: u.repeat_interleave(2, 2)[:, :, ::2],
        "expanded": lambda: u[:1].expand(3, 33, 37),
    }[layout]()
    found = []
    for block in (made, twin):
        leaf = u.detach().requires_grad_()
        block(leaf).sum().backward()  # a gradient that is one number, expanded
        found.append(leaf.grad)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_a_norm_may_be_frozen_alone():
    """As in fine-tuning: the block trains, its norm keeps its running statistics."""
    made, twin = twins(5, torch.float64)
    u, grad = torch.randn(2, 3, 33, 5, dtype=torch.float64)
    found = []
    for block in (made, twin):
        block.norm.eval()
        found.append(run(block, 2 * u, grad, None, 0.0))
    assert_same(*found, torch.float64)


def test_only_what_is_asked_for_gets_a_gradient():
    made, twin = twins(5, torch.float64, amplitude="both", bidirectional=True)
    u = 2 * torch.randn(2, 33, 5, dtype=torch.float64)
    for block in (made, twin):
        block.requires_grad_(False)
        block.norm.bias.requires_grad_(True)
        block(u).square().sum().backward()
    torch.testing.assert_close(made.norm.bias.grad, twin.norm.bias.grad, rtol=1e-9, atol=1e-9)
    assert [name for name, value in made.named_parameters() if value.grad is not None] == ["norm.bias"]


@pytest.mark.parametrize("loss", ["rates", "output"])
def test_a_loss_of_one_result_alone(loss):
    made, twin = twins(5, torch.float64, norm="none")
    for block in (made, twin):
        torch.manual_seed(1)
        u = 2 * torch.randn(2, 33, 5, dtype=torch.float64)
        with fire_rates(block, gradient=True) as rates:
            out = block(u)
        (rates.tensors()["token_neuron"] if loss == "rates" else out.sum()).backward()
    expected = twin.token_neuron.log_delta.grad
    assert expected.abs().max() > 1e-6
    torch.testing.assert_close(made.token_neuron.log_delta.grad, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 0, 5), (0, 7, 5)], ids=str)
def test_an_empty_stream_sends_back_zeros(shape):
    made, _ = twins(5, torch.float32, bidirectional=True, amplitude="both", dropout=0.5)
    before = made.norm.running_mean.clone()
    u = torch.zeros(shape, requires_grad=True)
    made(u).sum().backward()
    assert u.grad.shape == shape
    assert torch.equal(made.norm.running_mean, before)
    for name, value in made.named_parameters():
        assert torch.equal(value.grad, torch.zeros_like(value)), name


def test_packed_sequences_do_not_see_each_other():
    made, _ = twins(5, torch.float64, bidirectional=True)
    u = 2 * torch.randn(1, 90, 5, dtype=torch.float64)
    together = made.eval()(u, cu_seqlens=CU)
    for a, b in itertools.pairwise(CU.tolist()):
        assert torch.equal(together[:, a:b], made(u[:, a:b]))
