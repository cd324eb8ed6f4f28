"""Folding at the ends of the numbers' range, and in half precision."""

import numpy as np
import pytest
import torch
from deploy_cases import CASES, make_input, network

from resofire.deploy import fold
from resofire.deploy.reference import run
from resofire.nn import BatchNorm


@pytest.mark.parametrize("case", ["prenorm", "postnorm", "lif hard"])
def test_a_gain_that_is_nearly_none(subtests, case):
    for gain in [1e-12, 1e-18, 1e-25, 1e-36, 1e-40]:
        with subtests.test(gain=gain):
            model = network(CASES[case], torch.float32)
            with torch.no_grad():
                for part in model.modules():
                    if isinstance(part, BatchNorm):
                        part.weight[1] = gain
            x = make_input(CASES[case], 30)
            with torch.no_grad():
                expected = model.double()(x[None])[0].numpy()
            scores = run(fold(model.float()), x.float().numpy()).scores
            np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_weights_outside_the_range():
    model = network(CASES["prenorm"])
    with torch.no_grad():
        model.encoder.blocks[0].token_linear.weight[0, 0] = 1e200
    assert fold(model).dtype == np.float64
    with pytest.raises(ValueError, match=r"fold: the network cannot be folded in float32: 0\.rows must be finite"):
        fold(model, "float32")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_becomes_float32(dtype):
    assert fold(network(CASES["prenorm"]).to(dtype)).dtype == np.float32


def test_no_other_precision():
    with pytest.raises(ValueError, match="fold: dtype must be float32 or float64, got float16"):
        fold(network(CASES["prenorm"]), "float16")
