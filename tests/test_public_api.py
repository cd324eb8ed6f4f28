"""The public names and signatures: others build on them, so a change here is a decision."""

import inspect
import subprocess
import sys

import pytest

import resofire.compare
import resofire.data
import resofire.deploy
import resofire.measure
import resofire.models
import resofire.models.baselines
import resofire.nn
import resofire.ops
import resofire.recipes
import resofire.report
import resofire.train
from resofire.ops import registry

PRF_OPTIONS = (
    "*, threshold=1.0, reset='none', reset_gradient='detached', surrogate=ATan(alpha=2.0), state=None, "
    "cu_seqlens=None, reverse=False, backend='auto'"
)
LIF_OPTIONS = PRF_OPTIONS.replace("'none'", "'soft'")
NETWORK = f"*, neuron={resofire.nn.PRFConfig()}, pool='mean', rate_target=None, rate_weight=1.0, backend='auto', "
NETWORK += "class_names=None, pool_steps=None, rate_limit=None"
ENCODER = (
    f"{NETWORK}, features, depth, inputs=None, vocabulary=None, bidirectional=False, norm='batch', prenorm=True, "
    "last_norm=None, dropout=0.0, amplitude='sn', spatial_threshold=0.5, spatial_surrogate=ATan(alpha=2.0), "
    "positional_bias=0.0, standardise=False, block=None, spatial='neuron'"
)

SIGNATURES = {
    resofire.ops.prf: f"(current, phi_re, phi_im, delta, {PRF_OPTIONS})",
    resofire.ops.prf_step: "(current, phi_re, phi_im, delta, state, *, threshold=1.0, reset='none', "
    "surrogate=ATan(alpha=2.0))",
    resofire.ops.prf_coefficients: "(delta, theta, tau)",
    resofire.ops.lif: f"(current, beta, {LIF_OPTIONS})",
    resofire.ops.lif_step: "(current, beta, state, *, threshold=1.0, reset='soft', surrogate=ATan(alpha=2.0))",
    resofire.ops.spike_linear: "(spikes, weight, bias=None, *, backend='auto')",
    resofire.ops.explain: "(op, *args, **kwargs)",
    resofire.ops.check_finite: "()",
    resofire.ops.retain_buffers: "()",
    resofire.nn.PRF: "(features, *, tau=2.0, delta=(0.001, 0.1), theta=(0.0, 6.283185307179586), train_delta=True, "
    "train_theta=True, train_tau=False, threshold=1.0, reset='none', reset_gradient='detached', "
    "surrogate=ATan(alpha=2.0), backend='auto', evenly_spaced=False, gain='delta', resonators=1, "
    "history=0, period=None)",
    resofire.nn.LIF: "(features, *, tau=2.0, train_tau=False, threshold=1.0, reset='soft', reset_gradient='detached', "
    "surrogate=ATan(alpha=2.0), backend='auto')",
    resofire.nn.SpatialNeuron: "(*, threshold=0.5, amplitude=True, surrogate=ATan(alpha=2.0))",
    resofire.nn.BatchNorm: "(features, *, eps=1e-05, momentum=0.1)",
    resofire.nn.SpikeLinear: "(in_features, out_features, bias=True, *, backend='auto')",
    resofire.nn.SDTCM: f"(features, *, neuron={resofire.nn.PRFConfig()}, bidirectional=False, norm='batch', "
    "prenorm=True, dropout=0.0, amplitude='sn', spatial_threshold=0.5, surrogate=ATan(alpha=2.0), backend='auto', "
    "positional_bias=0.0, gradient_dtype='float32', spatial='neuron')",
    resofire.nn.fire_rates: "(model, *, gradient=False)",
    resofire.nn.summed: "(x, group=None)",
    resofire.nn.synchronise: "(model, group=None)",
    resofire.models.ClassifierConfig: f"({ENCODER}, classes)",
    resofire.models.RetrievalConfig: f"({ENCODER}, classes=2)",
    resofire.models.FeedforwardConfig: f"({NETWORK}, sizes, gain=1.0)",
    resofire.models.Classifier: "(config)",
    resofire.models.Retrieval: "(config)",
    resofire.models.Feedforward: "(config)",
    resofire.models.Classifier.forward: "(self, x, *, lengths=None, cu_seqlens=None)",
    resofire.models.Retrieval.forward: "(self, x, *, lengths=None, cu_seqlens=None)",
    resofire.models.Feedforward.forward: "(self, x, *, lengths=None, cu_seqlens=None)",
    resofire.models.Classifier.penalised: "(self, x, *, lengths=None, cu_seqlens=None)",
    resofire.models.Classifier.step: "(self, x, state)",
    resofire.models.Feedforward.step: "(self, x, state)",
    resofire.models.build: "(config)",
    resofire.models.load: "(path)",
    resofire.models.save: "(model, folder)",
    resofire.load: "(path)",
    resofire.pretrained: "(name)",
    resofire.train.train: "(config, task, folder, *, model=None, loss=None, optimizer=None, callbacks=(), devices=1)",
    resofire.train.resume: "(folder, task, *, model=None, loss=None, optimizer=None, callbacks=(), devices=None)",
    resofire.train.evaluate: "(model, task, batch)",
    resofire.recipes.smnist: "()",
    resofire.deploy.fold: "(model, dtype=None)",
    resofire.deploy.Stream: "(model, streams=1, *, dtype=None)",
    resofire.deploy.Stream.feed: "(self, x, *, every=False, spikes=None)",
    resofire.deploy.Stream.step: "(self, x)",
    resofire.deploy.quantize: ("(folded, samples, *, weight_bits=8, state_bits=16, input_bits=8, phi_bits=None)"),
    resofire.deploy.export: "(model, to, out, samples, *, class_names=None, readout=None, **options)",
    resofire.measure.fire_rates: "(model, batches)",
    resofire.measure.account: "(model, rates, length, *, against=('s4',), state_size=64, "
    f"costs={resofire.measure.COSTS['float32']}, fold_norm=False)",
    resofire.report.run_data: "(folder, request=None)",
    resofire.report.comparison_data: "(folders, *, title='Comparison', names=None, data_dir=None)",
    resofire.report.page: "(data, live='')",
    resofire.measure.count_ops: "(model, shape, rates, *, fold_norm=False)",
}


def plain(function) -> str:
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__qualname__)
def test_signature(function):
    assert plain(function) == SIGNATURES[function]


def test_names():
    assert resofire.ops.__all__ == [
        "ATan", "LIFState", "PRFState", "Rectangle", "Sigmoid", "Surrogate", "Triangle", "check_finite", "explain",
        "lif", "lif_step", "moments", "prf", "prf_coefficients", "prf_step", "retain_buffers",
        "spike_linear",
    ]  # fmt: skip
    assert resofire.nn.__all__ == [
        "AHP", "ALIF", "BHRF", "BRF", "DRF", "GLIF", "LIF", "PLIF", "PRF", "PSN", "SDTCM", "TCLIF", "BatchNorm",
        "Config", "Configurable", "FireRates", "LIFConfig", "Neuron", "NeuronConfig", "PRFConfig", "Recurrent",
        "SlidingPSN", "SpatialNeuron", "SpikeLinear", "Trace", "fire_rates", "summed", "synchronise",
    ]  # fmt: skip
    assert resofire.models.__all__ == [
        "Classifier", "ClassifierConfig", "Feedforward", "FeedforwardConfig", "Network", "NetworkConfig", "Retrieval",
        "RetrievalConfig", "StorageError", "build", "find", "load", "require_saveable", "save", "shipped",
    ]  # fmt: skip
    assert resofire.deploy.__all__ == [
        "FORMATS", "ExportError", "FloatFormat", "FoldError", "Folded", "Format", "Layer", "Neurons", "Quantized",
        "Simulation", "Stream", "VerificationError", "export", "fold", "holds_folded", "load", "operations", "quantize",
        "register", "save",
    ]  # fmt: skip
    assert {"COSTS", "PEERS", "count_ops", "energy", "fire_rates", "measure", "report"} <= {*resofire.measure.__all__}
    assert resofire.report.__all__ == ["Request", "comparison_data", "explorer_page", "page", "run_data"]
    assert resofire.ops.PRFState._fields == ("u", "r")
    assert resofire.ops.LIFState._fields == ("u",)
    for op in ("prf", "lif"):
        assert registry.names(op) == ["scan", "triton", "fft", "reference"]


def test_importing_does_not_load_the_kernel_compilers():
    heavy = {"numba", "triton", "spikingjelly", "lightning_fabric"}
    code = f"import sys, resofire.recipes; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


PACKAGES = (
    resofire.compare, resofire.data, resofire.deploy, resofire.measure, resofire.models, resofire.models.baselines,
    resofire.nn, resofire.ops, resofire.recipes, resofire.report, resofire.train,
)  # fmt: skip


def undocumented(package) -> list[str]:
    """Public functions and classes without a docstring, or whose arguments have no `Args:`."""
    missing = []
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isfunction(value):
            arguments = len(inspect.signature(value).parameters) > 1
        elif inspect.isclass(value):
            fields = hasattr(value, "__dataclass_fields__") or issubclass(value, tuple | Exception)
            arguments = not fields and len(inspect.signature(vars(value).get("__init__", len)).parameters) > 1
        else:
            continue
        text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        if not text or (arguments and "Args:" not in text):
            missing.append(f"{package.__name__}.{name}")
    return missing


def test_public_names_are_documented():
    assert [name for package in PACKAGES for name in undocumented(package)] == []
