"""The experiments that need no training: what they find is what the corrected theory says, to the digit that it can."""

import importlib
import math

import pytest

from resofire.paper.workplace import Workplace


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results by name, each worked out once, at the smallest budget."""
    kept = {}

    def result(name):
        if name not in kept:
            module = importlib.import_module(f"resofire.paper.{name.replace('-', '_')}")
            kept[name] = module.run(Workplace(name, 1e-4, tmp_path_factory.mktemp("runs")))
        return kept[name]

    return result


def test_no_backend_differs_but_float32_throughout_does(found):
    result = found("inference-equivalence")
    assert result["sequences"] >= 256
    assert 0.05 < result["spikes"] / result["steps"] < 0.95
    assert set(result["differing"]["float64"]) >= {"fft", "scan"}
    for name, each in result["differing"]["float64"].items():
        assert each["sequences"] == each["spikes"] == 0, name
    for name, each in result["differing"]["float32"].items():
        assert each["margin"] < (1e-2 if "throughout" in name else 1e-5), name
        assert sum(each["by_beta"]) == each["sequences"]
    shown = result["drawing"]
    assert shown["sequential"] == shown["decoupled"]
    assert len(shown["sequential"]) > 5
    # The drawing's own numbers: a spike is where the potential without reset meets its threshold.
    met = [
        t for t, (u, d) in enumerate(zip(shown["potential_without_reset"], shown["threshold"], strict=True)) if u >= d
    ]
    assert met == shown["decoupled"]


def test_a_prf_answers_its_own_rhythm_only(found):
    result = found("dynamics")
    lif, prf = result["neurons"]["lif"], result["neurons"]["prf"]
    assert all(lif["spikes_per_train"])
    assert [count > 0 for count in prf["spikes_per_train"]] == [
        period == result["period"] for period in result["trains"]
    ]
    assert max(lif["convolution_error"], prf["convolution_error"]) < 1e-12


def test_fast_forgets_slow_blurs_resonance_tells(found):
    result = found("problem")
    fast, slow, prf = (result["neurons"][name] for name in ("fast", "slow", "prf"))
    lag, shift = result["second"] - result["first"], result["shift"]
    assert fast["left"] == pytest.approx((1 - 1 / 8) ** lag, rel=1e-6)
    assert slow["with_and_without"] == pytest.approx((1 - 1 / 600) ** lag, rel=1e-6)
    assert prf["left"] == pytest.approx(math.exp(-lag / 600), rel=1e-6)
    assert abs(slow["shifted"]) == pytest.approx((1 - 1 / 600) ** (lag - shift) - (1 - 1 / 600) ** lag, rel=1e-6)
    # A quarter of a turn: from the top to zero.
    assert abs(prf["shifted"]) == pytest.approx(math.exp(-lag / 600), rel=1e-4)
    assert prf["over_shifts"][result["period"]] < 0.1 * abs(prf["shifted"])


def test_theorem_1_holds_at_rho_beta_alone(found):
    for each in found("theorems")["adaptive_threshold"]:
        assert each["differ_at_beta"] == 0
        for rho, share in zip(each["rhos"], each["share_differing"], strict=True):
            assert (share == 0) == (rho == each["beta"])
        assert each["share_differing"][-1] > 0.2
        assert each["fire_rate_at_1"] < 0.2 * each["fire_rate"]


def test_theorem_2_is_exact_for_the_exponential(found):
    for row in found("theorems")["without_resonance"]:
        tau = row["tau"]
        assert row["exact"]["spikes_differing"] == 0
        assert row["exact"]["potential_off"] < 1e-14
        assert row["decay_off"] == pytest.approx(1 / (2 * tau**2), rel=0.4 / tau + 0.01)
        assert row["first_order"]["spikes_differing"] > 0
        if tau >= 8:
            assert row["first_order"]["potential_off"] == pytest.approx(1 / (math.sqrt(8) * tau), rel=0.25)


def test_theorem_3_has_the_corrected_variance(found):
    rows = found("theorems")["variance"]["rows"]
    for row in rows:
        slack = 5 * row["sampling_error"]
        assert abs(row["whole_measured"] / row["whole"] - 1) < slack
        assert abs(row["real_measured"] / row["real"] - 1) < slack
    fast = max(rows, key=lambda row: row["theta"])
    assert abs(fast["real_measured"] / fast["paper"] - 1) > 0.4
    still = min(rows, key=lambda row: row["theta"])
    assert still["real_measured"] == still["whole_measured"]


def test_the_measured_response_is_the_closed_form(found):
    result = found("frequency-response")
    for curve in result["curves"]:
        whole, real = curve["peak"]
        assert max(curve["error"]) < 1e-8
        assert whole["omega"] == pytest.approx(curve["theta"], abs=2e-3)
        assert whole["height"] == pytest.approx(curve["tau"], rel=0.02)
        if curve["theta"] * curve["tau"] >= 5:
            assert real["height"] == pytest.approx(curve["tau"] / 2, rel=0.05)
        else:
            assert abs(real["omega"] / curve["theta"] - 1) > 0.5
    for row in result["heights"]["rows"]:
        assert row["measured"] == pytest.approx(row["closed"], rel=1e-9)
    assert result["heights"]["rows"][-1]["measured"] > 1.2 * result["heights"]["rows"][-1]["paper"]


def test_the_step_is_of_first_order(found):
    result = found("discretisation")
    assert result["solver_apart"] < 1e-10
    assert result["slopes"]["smooth"] == pytest.approx(1, abs=0.05)
    assert result["slopes"]["held"] == pytest.approx(1, abs=0.05)
    assert result["slopes"]["held_exact"] == pytest.approx(2, abs=0.05)
    assert max(row["impulses"] for row in result["rows"]) < 1e-12
    off = {each["task"]: each["off"] for each in result["factors"]}
    assert off["Text"] < 0.05
    assert off["Image"] > 1


def test_operations_are_counted_on_neurons_that_fire_the_same(found):
    result = found("deployment-operations")
    forms = result["forms"]
    assert all(each["spikes_differing"] == 0 and each["spikes"] > 10 for each in forms.values())
    expected = {"lif": (1, 2, 1), "prf": (5, 3, 1), "prf_folded": (4, 3, 1), "prf_three": (3, 4, 1),
              "prf_norm": (6, 4, 1), "prf_norm_folded": (4, 4, 1)}  # fmt: skip
    for name, counts in expected.items():
        assert tuple(forms[name][kind] for kind in ("multiply", "add", "compare")) == counts, name
    for name, counts in result["library"].items():
        assert {kind: forms[name][kind] for kind in counts} == counts
    network = result["folded_network"]
    assert network["spikes"] > 100
    assert (network["spikes_differing"], network["multiply"]) == (0, 4)


def test_the_complexity_table_comes_out_of_the_counts(found):
    result = found("complexity")
    for name, paper in result["paper"].items():
        for key, value in paper.items():
            assert value is None or result["rows"][name][key] == value, (name, key)
    rows, widths = result["rows"], result["widths"]
    size, context = result["state_size"], result["context"]
    assert rows["sdtcm"]["products"] == [5 * width for width in widths]
    assert rows["s4"]["products"] == [size**2 + 2 * width * size for width in widths]
    assert rows["transformer"]["products"] == [2 * width * context for width in widths]


def test_the_energy_table_is_reproduced_to_the_digit(found):
    result = found("energy")
    for each in result["tasks"]:
        for kind in ("energy", "s4"):
            assert each[kind]["reproduced"] == each[kind]["printed"], each["task"]
        assert each["energy"]["audited_over_printed"] > 1
    for kind, printed in result["means_printed"].items():
        assert result["means"][kind]["reproduced"] == pytest.approx(printed, abs=6e-4)


def test_the_averages_are_those_of_the_layers(found):
    result = found("fire-rates")
    for each in result["tasks"].values():
        rates = each["temporal"] + each["spatial"]
        assert each["average"]["true"] == pytest.approx(sum(rates) / len(rates))
        assert each["average"]["reproduced"] == each["average"]["printed"]
        assert float(each["average"]["printed"]) == pytest.approx(sum(rates) / (len(rates) + 2), abs=6e-3)
    ours = result["ours"]
    rates = ours["temporal"] + ours["spatial"]
    assert ours["average"] == pytest.approx(sum(rates) / len(rates))
    assert 0 < ours["average"] < 100
