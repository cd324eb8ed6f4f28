"""The classifier: parameter counts, packing, streaming, pooling, the spike-rate regulariser, bad input."""

import copy
import dataclasses
import itertools

import pytest
import torch

from resofire.models import Classifier, ClassifierConfig, build
from resofire.models.sequences import Sequences
from resofire.nn import LIFConfig, PRFConfig

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)
DOUBLE = torch.float64


def config(**settings) -> ClassifierConfig:
    base = {"classes": 3, "features": 6, "depth": 2, "inputs": None if "vocabulary" in settings else 2, "neuron": QUICK}
    return ClassifierConfig(**{**base, **settings})


def classifier(**settings) -> Classifier:
    """In float64, with running statistics as after some training."""
    model = build(config(**settings)).double()
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return model


def batch(model: Classifier, *shape: int) -> torch.Tensor:
    if model.config.vocabulary is not None:
        return torch.randint(model.config.vocabulary, shape)
    return 2 * torch.randn(*shape, model.config.inputs, dtype=DOUBLE)


def pack(x: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    bounds = [0, *itertools.accumulate(lengths)]
    return torch.cat([row[:n] for row, n in zip(x, lengths, strict=True)])[None], torch.tensor(
        bounds, dtype=torch.int32
    )


SIZES = {
    "ListOps": (271_890, {"classes": 10, "features": 128, "depth": 8, "vocabulary": 18, "prenorm": False}),
    "Text": (830_984, {"classes": 2, "features": 256, "depth": 6, "vocabulary": 134}),
    "Pathfinder": (
        1_258_504, {"classes": 2, "features": 256, "depth": 6, "vocabulary": 256, "bidirectional": True},
    ),
    "Image": (
        4_749_328,
        {"classes": 10, "features": 512, "depth": 6, "inputs": 1, "bidirectional": True, "prenorm": False},
    ),
    "sMNIST, trained tau": (
        68_874,
        {"classes": 10, "features": 128, "depth": 2, "inputs": 1, "last_norm": False, "amplitude": "none",
         "neuron": PRFConfig(train_tau=True)},
    ),
    "sMNIST, trained tau, amplitude": (
        68_876,
        {"classes": 10, "features": 128, "depth": 2, "inputs": 1, "last_norm": False,
         "neuron": PRFConfig(train_tau=True)},
    ),
    "sMNIST, last norm": (68_876, {"classes": 10, "features": 128, "depth": 2, "inputs": 1}),
}  # fmt: skip


def test_the_papers_sizes(subtests):
    for task, (count, settings) in SIZES.items():
        with subtests.test(task):
            with torch.device("meta"):
                model = build(ClassifierConfig(**settings))
            assert sum(p.numel() for p in model.parameters()) == count


LAYOUTS = {
    "values": {},
    "tokens": {"vocabulary": 11, "neuron": LIFConfig(threshold=0.5)},
    "post-norm, last": {"prenorm": False, "pool": "last"},
    "bidirectional": {"bidirectional": True, "amplitude": "both"},
    "every step": {"pool": "none", "norm": "none"},
}
LENGTHS = [7, 0, 12, 1]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lengths_are_packing(layout, training):
    model = classifier(**LAYOUTS[layout]).train(training)
    twin = copy.deepcopy(model)
    x = batch(model, 4, 12)
    packed, cu = pack(x, LENGTHS)
    for row, n in enumerate(LENGTHS):
        # What lies behind the end is never looked at.
        x[row, n:] = 999 if model.config.vocabulary else torch.nan
    ours, wanted = model(x, lengths=torch.tensor(LENGTHS)), twin(packed, cu_seqlens=cu)
    assert ours.isfinite().all()
    if model.config.pool == "none":
        assert ours.shape == (4, 12, 3)
        assert not any(row[n:].any() for row, n in zip(ours, LENGTHS, strict=True))
        ours, _ = pack(ours, LENGTHS)
    torch.testing.assert_close(ours, wanted)
    weight = torch.randn_like(ours)
    (ours * weight).sum().backward()
    (wanted * weight).sum().backward()
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
        assert a.grad.isfinite().all(), name
    for (name, a), b in zip(model.named_buffers(), twin.buffers(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_sequence_for_itself_is_the_packed_call(layout):
    model = classifier(**LAYOUTS[layout]).eval()
    x = batch(model, 4, 12)
    packed, cu = pack(x, LENGTHS)
    together = model(packed, cu_seqlens=cu)
    together.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    alone = torch.cat([model(x[i : i + 1, :n]) for i, n in enumerate(LENGTHS)], int(model.config.pool == "none"))
    torch.testing.assert_close(together, alone)
    alone.square().sum().backward()
    for ours, wanted in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted.grad)
    full, cu = pack(x, [12] * 4)
    fixed = model(x)
    torch.testing.assert_close(fixed, model(full, cu_seqlens=cu).view(fixed.shape))
    torch.testing.assert_close(fixed, model(x, lengths=torch.full((4,), 12, dtype=torch.int32)))


def test_every_parameter_is_reached():
    for settings in (
        {"bidirectional": True, "amplitude": "both"},
        {"vocabulary": 5, "neuron": LIFConfig(train_tau=True)},
    ):
        model = classifier(**settings).eval()
        model(batch(model, 4, 30)).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
def test_empty_sequences_give_the_heads_bias(pool):
    model = classifier(pool=pool)
    for x, options in (
        (batch(model, 2, 0), {}),
        (batch(model, 2, 4), {"lengths": torch.tensor([0, 0])}),
        (batch(model, 1, 0), {"cu_seqlens": torch.tensor([0, 0, 0], dtype=torch.int32)}),
    ):
        logits = model(x, **options)
        if pool == "none":
            assert not logits.any()
        else:
            assert torch.equal(logits, model.head.bias.expand(2, 3))
    assert model(batch(model, 0, 4)).shape[0] == 0


STREAMS = {
    "values, mean": {},
    "tokens, last": {"vocabulary": 11, "pool": "last", "neuron": LIFConfig(threshold=0.5)},
    "post-norm, mean": {"prenorm": False, "amplitude": "both"},
    "every step": {"pool": "none", "last_norm": False},
}


@pytest.mark.parametrize("case", STREAMS)
def test_after_every_step_the_logits_are_those_of_the_steps_so_far(case):
    model = classifier(**STREAMS[case]).eval()
    x = batch(model, 3, 25)
    for state in (None, model.init_state(3)):
        for t in range(25):
            logits, state = model.step(x[:, t], state)
            wanted = model(x[:, : t + 1])
            wanted = wanted[:, -1] if model.config.pool == "none" else wanted
            torch.testing.assert_close(logits, wanted, rtol=1e-10, atol=1e-10)


def test_a_state_can_be_kept_and_taken_up_again():
    model = classifier().eval()
    x = batch(model, 2, 20)
    _, kept = model.step(x[:, 0], model.init_state(2))
    first, _ = model.step(x[:, 1], kept)
    model.step(x[:, 5], kept)
    again, _ = model.step(x[:, 1], kept)
    assert torch.equal(first, again)


def test_what_cannot_be_streamed_says_so():
    model = classifier()
    x = batch(model, 2, 3)
    with pytest.raises(RuntimeError, match=r"Classifier.step: batch statistics cannot be streamed; call \.eval\(\)"):
        model.step(x[:, 0], None)
    with pytest.raises(RuntimeError, match=r"SDTCM\.step: batch statistics cannot be streamed"):
        classifier(prenorm=False).step(x[:, 0], None)
    both = classifier(bidirectional=True).eval()
    for call in (lambda: both.step(x[:, 0], None), lambda: both.init_state(2)):
        with pytest.raises(RuntimeError, match=r"Classifier\.\w+: a bidirectional network needs whole sequences"):
            call()
    with pytest.raises(TypeError, match=r"Classifier\.step: state must be .* with 2 layers, got 1 layers"):
        model.eval().step(x[:, 0], classifier(depth=1).init_state(2))
    with pytest.raises(TypeError, match=r"Classifier\.step: state must be .* with 2 layers, got tuple"):
        model.step(x[:, 0], ())
    with pytest.raises(ValueError, match=r"Classifier\.init_state: batch must be"):
        model.step(x[:0, 0], None)


def test_long_float32_means_keep_their_digits():
    lengths = [300_000, 0, 1, 64, 65]
    stream = torch.rand(1, sum(lengths), 2) + 0.1
    cu = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    pooled = Sequences(5, cu).pool(stream, "mean")
    wanted = [stream[0, a:b].double().sum(0) / max(1, b - a) for a, b in itertools.pairwise(cu.tolist())]
    torch.testing.assert_close(pooled, torch.stack(wanted).float(), rtol=2e-6, atol=0)


def test_the_regulariser_is_the_quadratic_and_draws_the_rates_to_the_target():
    for target in (0.05, 0.6):
        model = classifier(rate_target=target, rate_weight=2.0)
        x = batch(model, 8, 20)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
        seen = []
        for _ in range(40):
            logits, penalty, rates = model.penalised(x)
            seen.append(penalty.item())
            assert penalty.item() == pytest.approx(2 * sum((rate.item() - target) ** 2 for rate in rates.values()))
            optimiser.zero_grad()
            penalty.backward()
            optimiser.step()
        assert seen[-1] < 0.5 * seen[0]
        assert set(rates) == {
            f"encoder.blocks.{i}.{name}_neuron" for i in range(2) for name in ("token", "channel")
        }  # fmt: skip
        assert not any(rate.requires_grad for rate in rates.values())
        assert logits.shape == (8, 3)


def test_the_limit_penalises_a_higher_mean_rate_and_nothing_else():
    model = classifier(rate_limit=0.05, rate_weight=3.0)
    x = batch(model, 8, 20)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    means = []
    for _ in range(200):
        _, penalty, rates = model.penalised(x)
        mean = sum(rate.item() for rate in rates.values()) / len(rates)
        means.append(mean)
        if mean <= 0.05:
            break
        assert penalty.item() == pytest.approx(3 * (mean / 0.05 - 1) ** 2)
        optimiser.zero_grad()
        penalty.backward()
        optimiser.step()
    assert means[0] > 0.06
    assert means[-1] <= 0.05
    assert penalty.item() == 0
    # Below the limit it has no gradient, however unequal the layers are.
    optimiser.zero_grad()
    penalty.backward()
    assert not any(each.grad.any() for each in model.parameters() if each.grad is not None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_limit": 0.0}, "rate_limit must be None or above 0 and at most 1, got 0.0"),
        ({"rate_limit": float("nan")}, "rate_limit must be None or above 0 and at most 1, got nan"),
        ({"rate_limit": 0.1, "rate_target": 0.2}, "one of rate_target and rate_limit must be None, got 0.2 and 0.1"),
    ],
)
def test_limits_of_rates_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        classifier(**settings)


def test_rates_and_penalty_count_true_steps_only():
    model = classifier(rate_target=0.1, rate_weight=1.0).eval()
    x = batch(model, 4, 12)
    packed, cu = pack(x, LENGTHS)
    ours, wanted = model.penalised(x, lengths=torch.tensor(LENGTHS)), model.penalised(packed, cu_seqlens=cu)
    torch.testing.assert_close(ours, wanted)
    assert torch.equal(ours[0], model(x, lengths=torch.tensor(LENGTHS)))
    plain = build(dataclasses.replace(model.config, rate_target=None)).double().eval()
    plain.load_state_dict(model.state_dict())
    logits, penalty, rates = plain.penalised(packed, cu_seqlens=cu)
    assert penalty.item() == 0
    assert not penalty.requires_grad
    torch.testing.assert_close((logits, rates), (wanted[0], wanted[2]))
    assert classifier().float().penalised(x.float())[1].dtype == torch.float32


def test_state_dict_and_copies():
    one, other = classifier(), classifier()
    x = batch(one, 2, 15)
    one.eval(), other.eval()
    assert not torch.allclose(one(x), other(x))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
    assert torch.equal(one(x), copy.deepcopy(one)(x))
    assert {name.split(".")[0] for name in one.state_dict()} == {"encoder", "head"}
    assert {name.split(".")[1] for name in one.encoder.state_dict(prefix="e.")} == {"input", "blocks", "norm"}


def test_tokens_may_be_of_any_whole_type():
    model = classifier(vocabulary=200).eval()
    x = torch.randint(200, (2, 9))
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert torch.equal(model(x.to(dtype)), model(x))


def test_half_precision_and_autocast_run():
    x = torch.randn(2, 9, 2)
    assert build(config()).bfloat16()(x.bfloat16(), lengths=torch.tensor([9, 4])).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        build(config())(x).float().sum().backward()


def test_configs_are_values():
    assert config() == config()
    assert hash(config()) == hash(config())
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().depth = 3
    assert config().has_last_norm
    assert not config(prenorm=False).has_last_norm
    assert not config(norm="none").has_last_norm
    assert config(norm="none", last_norm=True).has_last_norm
    assert isinstance(build(config()), Classifier)
    with pytest.raises(TypeError, match=r"build: config must be the config of a network, got PRFConfig"):
        build(PRFConfig())


def test_every_block_has_the_clock():
    for block in build(config(positional_bias=1.5, neuron=PRFConfig(delta=0.01))).encoder.blocks:
        assert block.norm.bias.abs().min() > 0
    for block in build(config()).encoder.blocks:
        assert not block.norm.bias.any()


BAD_CONFIGS = {
    "classes": ({"classes": 0}, "classes must be a positive integer, got 0"),
    "features": ({"features": 1.5}, "features must be a positive integer, got 1.5"),
    "depth": ({"depth": True}, "depth must be a positive integer, got True"),
    "inputs": ({"inputs": 0}, "inputs must be a positive integer, got 0"),
    "vocabulary": ({"vocabulary": -1}, "vocabulary must be a positive integer, got -1"),
    "both": ({"inputs": 1, "vocabulary": 2}, "exactly one .* got inputs=1 and vocabulary=2"),
    "neither": ({"inputs": None}, "exactly one of inputs and vocabulary must be given, got inputs=None"),
    "neuron": ({"neuron": "lif"}, r"neuron must be a config such as PRFConfig\(\) or a Neuron class, got 'lif'"),
    "a class": ({"neuron": PRFConfig}, "neuron must be a config such as"),
    "norm": ({"norm": "layer"}, "norm must be one of 'batch', 'none', got 'layer'"),
    "prenorm": ({"prenorm": "yes"}, "prenorm must be True or False, got 'yes'"),
    "last_norm": ({"last_norm": 1}, "last_norm must be None, True or False, got 1"),
    "dropout": ({"dropout": -0.1}, "dropout must be from 0 up to, but not, 1, got -0.1"),
    "amplitude": ({"amplitude": "ns"}, "amplitude must be one of .* got 'ns'"),
    "threshold": ({"spatial_threshold": None}, "spatial_threshold must be a number or a tensor, got None"),
    "positional bias": (
        {"positional_bias": 1.0, "norm": "none"},
        "positional_bias must be 0 without a norm before .* got 1.0, norm='none'",
    ),
    "positional bias of a LIF": (
        {"positional_bias": 1, "neuron": LIFConfig()},
        r"positional_bias must be 0 unless .* got 1 and LIFConfig\(",
    ),
    "pool": ({"pool": "max"}, "pool must be one of .* got 'max'"),
    "target": ({"rate_target": 2.0}, "rate_target must be None or from 0 to 1, got 2.0"),
    "weight": ({"rate_weight": -1.0}, "rate_weight must be a number of at least 0, got -1.0"),
}


def test_bad_settings_are_named(subtests):
    for case, (settings, pattern) in BAD_CONFIGS.items():
        with subtests.test(case), pytest.raises((ValueError, TypeError), match=f"ClassifierConfig: {pattern}"):
            config(**settings)


X, TOKENS = torch.zeros(3, 5, 2), torch.zeros(3, 5, dtype=torch.int64)


def cu(*bounds: int) -> torch.Tensor:
    return torch.tensor(bounds, dtype=torch.int32)


BAD_VALUES = {
    "no tensor": ([1.0], {}, r"x must be a tensor \[B, T, 2\], got list"),
    "dimensions": (X[0], {}, r"x must have shape \[B, T, 2\], got \[5, 2\]"),
    "width": (X[..., :1], {}, r"x must have shape \[B, T, 2\], got \[3, 5, 1\]"),
    "type": (X.double(), {}, "x must be float32 like the weights, got float64"),
    "integers": (X.long(), {}, "x must be float32 like the weights, got int64"),
    "both": (X[:1], {"lengths": torch.tensor([5]), "cu_seqlens": cu(0, 5)}, "lengths and cu_seqlens must not both"),
    "lengths' shape": (X, {"lengths": torch.tensor([1, 2])}, r"lengths must have shape \[3\], got \[2\]"),
    "lengths' type": (X, {"lengths": torch.ones(3)}, "lengths must be a tensor of integers, got float32"),
    "a list": (X, {"lengths": [1, 2, 3]}, "lengths must be a tensor of integers, got list"),
    "too long": (X, {"lengths": torch.tensor([1, 6, 2])}, "lengths must be from 0 to 5, got 6"),
    "negative": (X, {"lengths": torch.tensor([1, -1, 2])}, "lengths must be from 0 to 5, got -1"),
    "not packed": (X, {"cu_seqlens": cu(0, 5)}, r"x must be packed as \[1, S, ...\] .* got \[3, 5, 2\]"),
    "int64": (X[:1], {"cu_seqlens": cu(0, 5).long()}, r"cu_seqlens must be an int32 tensor .* got int64 \[2\]"),
    "short": (X[:1], {"cu_seqlens": cu(0, 4)}, "cu_seqlens must run from 0 to 5, got 0 to 4"),
    "falling": (X[:1], {"cu_seqlens": cu(0, 4, 3, 5)}, "cu_seqlens must not fall, got 4 then 3 at position 1"),
}  # fmt: skip
BAD_TOKENS = {
    "values": (X, {}, r"x must have shape \[B, T\], got \[3, 5, 2\]"),
    "floats": (X[..., 0], {}, "x must hold tokens, which are integers, got float32"),
    "too large": (TOKENS + 200, {}, "x must hold tokens from 0 to 133, got 200"),
    "negative": (TOKENS - 1, {"lengths": torch.tensor([5, 1, 0])}, "x must hold tokens from 0 to 133, got -1"),
}  # fmt: skip


def test_bad_values_are_named(subtests):
    for case, (x, options, pattern) in BAD_VALUES.items():
        with subtests.test(case), pytest.raises((ValueError, TypeError), match=f"Classifier: {pattern}"):
            build(config())(x, **options)


def test_bad_tokens_are_named(subtests):
    for case, (x, options, pattern) in BAD_TOKENS.items():
        with subtests.test(case), pytest.raises((ValueError, TypeError), match=f"Classifier: {pattern}"):
            build(config(vocabulary=134))(x, **options)


def test_lengths_and_tokens_of_small_types(subtests):
    for dtype in [torch.uint8, torch.int8, torch.int16, torch.uint16]:
        with subtests.test(str(dtype)):
            model = classifier(inputs=None, vocabulary=10).eval()
            x, lengths = torch.randint(10, (3, 784)), torch.tensor([100, 50, 7])
            expected = model(x, lengths=lengths)
            assert torch.equal(model(x.to(dtype), lengths=lengths.to(dtype)), expected)


def test_a_stream_is_summed_in_float64():
    assert classifier().float().eval().init_state(2).total.dtype == torch.float64


def test_half_precision_trains_on_many_steps():
    model = build(config(inputs=1, vocabulary=None, features=8)).train()
    with torch.autocast("cpu", torch.float16):
        logits = model(torch.rand(64, 1100, 1))
    assert logits.isfinite().all()
    assert all(buffer.isfinite().all() for buffer in model.buffers())
