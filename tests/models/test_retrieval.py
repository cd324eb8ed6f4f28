"""Retrieval: its size, the head by hand, pairs fixed, padded and packed, bad input."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F

from resofire.models import Retrieval, RetrievalConfig, build
from resofire.nn import PRFConfig

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)


def retrieval(**settings) -> Retrieval:
    return build(RetrievalConfig(**{"features": 6, "depth": 2, "vocabulary": 9, "neuron": QUICK, **settings})).double()


def test_the_papers_size():
    with torch.device("meta"):
        model = build(RetrievalConfig(features=256, depth=6, vocabulary=98))
    assert isinstance(model, Retrieval)
    assert sum(p.numel() for p in model.parameters()) == 1_084_168


@pytest.mark.parametrize("pool", ["mean", "last"])
def test_the_head(pool):
    model = retrieval(pool=pool).eval()
    x = torch.randint(9, (3, 2, 15))
    a, b = (model.encoder(x[:, i])[0] for i in range(2))
    first, _, last = model.head
    hidden = F.gelu(torch.cat([a, b, a - b, a * b], 1) @ first.weight.T + first.bias)
    torch.testing.assert_close(model(x), hidden @ last.weight.T + last.bias)
    assert not torch.allclose(model(x), model(x.flip(1)))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "settings", [{}, {"vocabulary": None, "inputs": 2, "bidirectional": True}], ids=["tokens", "values"]
)
def test_fixed_padded_and_packed_agree(settings, training):
    model = retrieval(**settings).train(training)
    twin = copy.deepcopy(model)
    tokens = model.config.vocabulary is not None
    x = torch.randint(9, (3, 2, 12)) if tokens else torch.randn(3, 2, 12, 2, dtype=torch.float64)
    lengths = torch.tensor([[12, 3], [0, 5], [1, 12]])
    packed = torch.cat([document[:n] for document, n in zip(x.flatten(0, 1), lengths.flatten(), strict=True)])[None]
    cu = torch.tensor([0, *itertools.accumulate(lengths.flatten().tolist())], dtype=torch.int32)
    padded = x.clone()
    for document, n in zip(padded.flatten(0, 1), lengths.flatten(), strict=True):
        document[n:] = -1 if tokens else torch.nan
    ours, expected = model(padded, lengths=lengths), twin(packed, cu_seqlens=cu)
    assert ours.shape == (3, 2)
    torch.testing.assert_close(ours, expected)
    ours.square().sum().backward()
    expected.square().sum().backward()
    for (name, a), b in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b[1].grad)
        assert a.grad.isfinite().all(), name
    torch.testing.assert_close(model(x), model(x, lengths=torch.full((3, 2), 12)))
    if not training:
        torch.testing.assert_close(model(x[:1, :, :5]), model(x, lengths=torch.full((3, 2), 5))[:1])


def test_the_penalty_covers_both_documents():
    model = retrieval(rate_target=0.2, rate_weight=1.0)
    logits, penalty, rates = model.penalised(torch.randint(9, (3, 2, 12)))
    assert logits.shape == (3, 2)
    assert penalty.item() == pytest.approx(sum((rate.item() - 0.2) ** 2 for rate in rates.values()))
    penalty.backward()
    assert model.encoder.input.weight.grad.abs().sum() > 0


X = torch.zeros(3, 2, 5, dtype=torch.int64)
CU = torch.tensor([0, 2, 3, 5], dtype=torch.int32)
BAD = {
    "one document": (X[:, 0], {}, r"x must have shape \[B, 2, T\], got \[3, 5\]"),
    "three documents": (torch.cat([X, X[:, :1]], 1), {}, r"x must hold 2 documents .* got \[3, 3, 5\]"),
    "floats": (X.double(), {}, "x must hold tokens, which are integers, got float64"),
    "token": (X + 9, {}, "x must hold tokens from 0 to 8, got 9"),
    "lengths' shape": (X, {"lengths": torch.arange(6)}, r"lengths must have shape \[3, 2\], got \[6\]"),
    "too long": (X, {"lengths": torch.full((3, 2), 6)}, "lengths must be from 0 to 5, got 6"),
    "odd": (X[0, :1], {"cu_seqlens": CU}, "cu_seqlens must bound an even number of documents, got 3"),
    "not packed": (X[:, 0], {"cu_seqlens": CU[[0, 1, 3]]}, r"x must be packed as \[1, S, ...\] .* got \[3, 5\]"),
    "both": (X[0, :1], {"cu_seqlens": CU[[0, 1, 3]], "lengths": torch.tensor([[1, 2]])}, "must not both be given"),
}  # fmt: skip


def test_bad_input_is_named(subtests):
    for case, (x, options, pattern) in BAD.items():
        with subtests.test(case), pytest.raises((ValueError, TypeError), match=f"Retrieval: .*{pattern}"):
            retrieval()(x, **options)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="RetrievalConfig: pool must be one of 'mean', 'last', 'leaky', got 'none'"):
        RetrievalConfig(features=4, depth=1, vocabulary=3, pool="none")
    with pytest.raises(ValueError, match="RetrievalConfig: classes must be a positive integer, got 0"):
        RetrievalConfig(features=4, depth=1, vocabulary=3, classes=0)


def test_both_documents_stream():
    model = retrieval().double().eval()
    x = torch.randint(model.config.vocabulary, (3, 2, 12))
    state = model.init_state(3)
    for t in range(12):
        logits, state = model.step(x[:, :, t], state)
        torch.testing.assert_close(logits, model(x[:, :, : t + 1]), rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"Retrieval.step: x must hold 2 documents .* got \[3, 3\]"):
        model.step(torch.zeros(3, 3, dtype=torch.int64), state)
