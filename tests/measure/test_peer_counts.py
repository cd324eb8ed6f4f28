"""The peers' counts: a Transformer against torch's own counter, the others by hand."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from resofire.measure import PEERS, Count, complexity, peer


@pytest.mark.parametrize(("width", "length"), [(64, 12), (128, 33)])
def test_matrix_products_of_a_transformer(width, length):
    """torch counts a MAC as two operations."""
    layer = torch.nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, dropout=0.0, batch_first=True)
    # The counter knows plain products only, not fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, length, width))
    found = peer("transformer", (width,), length, bidirectional=True).only(
        "token linear", "attention", "channel linear"
    )
    assert 2 * found.per_inference("mac") == counter.get_total_flops()


def test_elementwise_work_of_a_transformer_by_hand():
    """Width 128, so two heads, over 5 tokens: the attention matrix has 5 entries a head for each of them."""
    found = peer("transformer", (128,), 5, bidirectional=True)
    softmax = found.only("softmax")
    assert [softmax.per_step(kind) for kind in ("compare", "add", "multiply")] == [2 * 5, 2 * 2 * 5, 128]
    # An exponential for each entry, a reciprocal for each head; GELUs of the MLP; a root for each norm.
    assert found.per_step("nonlinear") == 2 * 5 + 2 + 4 * 128 + 2
    assert found.only("residual").per_step("add") == 2 * 128
    # Keys and values of all tokens are read at each step, one of each is written.
    assert found.per_step("state_read") == 5 * found.per_step("state_written") == 5 * 2 * 128 * 4


def test_attention_that_looks_back_only_does_half():
    causal, both = (peer("transformer", (64,), 100, bidirectional=ways).only("attention") for ways in (False, True))
    assert causal.per_inference("mac") == sum(2 * 64 * seen for seen in range(1, 101))
    assert both.per_inference("mac") == 2 * 64 * 100 * 100
    pair = peer("transformer", (64,), 100, sequences=2, bidirectional=True).only("attention")
    assert pair.per_inference("mac") == 2 * 2 * 64 * 50 * 50


def test_the_diagonal_recurrence_by_hand():
    """One channel, one complex state: u ← a u + b x, y = Re(c u) + d x, written out in real numbers."""
    found = peer("s4d", (1,), 1, state_size=2, norm=False).only("state space", "feedthrough")
    real_products = 2 + 2 + 2 + 2 + 1  # a u, both parts, two each; b x; c u; d x
    sums = 1 + 1 + 2 + 1 + 1  # within a u; adding b x; within Re(c u) and to d x
    assert found.per_step("mac") + found.per_step("multiply") == real_products
    assert found.per_step("mac") + found.per_step("add") == sums + 1  # the sum of y begins at 0


def test_both_ways_double_the_state_space_only():
    one, two = (peer("s4", (16,), 10, bidirectional=ways) for ways in (False, True))
    assert two.only("state space").per_step("mac") == 2 * one.only("state space").per_step("mac")
    for component in ("feedthrough", "channel linear"):
        assert two.only(component).per_step("mac") == one.only(component).per_step("mac") > 0
    assert two.only("gate").per_step("nonlinear") == one.only("gate").per_step("nonlinear") > 0


def test_columns_of_the_paper():
    """Its complexities; and no SSM or Transformer is free of nonlinear functions or of MACs."""
    assert {name: complexity(name) for name in PEERS} == {
        "s4": "H² + 2DH", "binary-s4d": "H² + 2DH", "gsu": "H² + 2DH", "s4d": "4DH", "transformer": "2CD"
    }  # fmt: skip
    assert complexity("s4", bidirectional=True) == "2H² + 4DH"
    for name in PEERS:
        found = peer(name, (8, 8), 10, rate=0.1)
        assert (found.no_nonlinear, found.no_mac) == (False, False)


@pytest.mark.parametrize(
    ("products", "words"),
    [
        (lambda width, context: width**3, "no polynomial of D and C"),
        (lambda width, context: 3 * width**2 + context * width, "3D² + CD"),
        (lambda width, context: 5 * width, "5D"),
    ],
    ids=["cubic", "square", "no context"],
)
def test_complexity_says_c_only_where_there_is_one(products, words, monkeypatch):
    def attention(width, name, site):
        return [Count(layer=name, component="attention", times=site.steps, mac=products(width, site.context))]

    monkeypatch.setitem(PEERS, "transformer", attention)
    assert complexity("transformer") == words


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("s5", (8,), 10), {}, "against must be among .*'s4'.*, got 's5'"),
        (("s4", (), 10), {}, r"widths must be a tuple of positive integers, one a block, got \(\)"),
        (("s4", 8, 10), {}, "widths must be a tuple of positive integers, one a block, got 8"),
        (("s4", (8,), -1), {}, "length must be a positive number, got -1"),
        (("s4", (8,), 10), {"state_size": 0}, "state_size must be a positive integer, got 0"),
        (("s4", (8,), 10), {"state_size": 2.5}, "state_size must be a positive integer, got 2.5"),
        (("s4", (8,), 10), {"state_size": True}, "state_size must be a positive integer, got True"),
        (("s4d", (8,), 10), {"state_size": 7}, "state_size must be even for s4d, .*, got 7"),
        (("gsu", (8,), 10), {"rate": 2}, "rate must be a rate from 0 to 1, got 2"),
    ],
)
def test_bad_input(arguments, settings, message):
    with pytest.raises(ValueError, match=f"peer: {message}"):
        peer(*arguments, **settings)
