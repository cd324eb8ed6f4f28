"""Recipes: a run is a function that returns its whole config. One file per task, each with a smaller variant,
and one for the paper's ablations.

The smaller ones get somewhere on two cores in under an hour; their functions say what is smaller.
"""

from collections.abc import Callable

from ..train import RunConfig
from .ablation import ablation_lif, ablation_lif_no_reset, ablation_plif, ablation_prf, decay
from .digits import digits, digits_small
from .fashion import fashion, fashion_small
from .image import image, image_small
from .listops import listops, listops_small
from .pathfinder import pathfinder, pathfinder_small
from .pathx import pathx, pathx_small
from .psmnist import psmnist, psmnist_random, psmnist_random_small, psmnist_small
from .retrieval import retrieval, retrieval_small
from .scifar import scifar, scifar_small
from .smnist import smnist, smnist_small
from .speech import speech, speech_small
from .text import text, text_small

FUNCTIONS: tuple[Callable[[], RunConfig], ...] = (
    digits, digits_small, smnist, smnist_small, psmnist, psmnist_small, psmnist_random, psmnist_random_small, fashion,
    fashion_small, speech, speech_small, listops, listops_small, text, text_small, retrieval, retrieval_small, image,
    image_small, scifar, scifar_small, pathfinder, pathfinder_small, pathx, pathx_small, ablation_lif,
    ablation_lif_no_reset, ablation_plif, ablation_prf, decay,
)  # fmt: skip
RECIPES = {function.__name__.replace("_", "-"): function for function in FUNCTIONS}

__all__ = ["RECIPES", *(function.__name__ for function in FUNCTIONS)]
