"""Recipes: a run is a function that returns its whole config. `RECIPES` has all that are registered.

The `-small` ones train in under an hour on two cores; their docstrings say what is smaller. The paper's ablations are
registered by `resofire.paper`.
"""

from .arena import (
    films,
    films_small,
    image,
    image_medium,
    image_paper,
    image_small,
    listops,
    listops_paper,
    listops_small,
    pathfinder,
    pathfinder_medium,
    pathfinder_paper,
    pathfinder_small,
    pathx,
    pathx_small,
    retrieval,
    retrieval_paper,
    retrieval_small,
    text,
    text_medium,
    text_medium_sparse,
    text_paper,
    text_small,
    text_small_sparse,
)
from .mnist import (
    fashion,
    fashion_small,
    psmnist,
    psmnist_random,
    psmnist_random_small,
    psmnist_small,
    smnist,
    smnist_small,
)
from .other import digits, digits_small, scifar, scifar_small, speech, speech_small
from .registry import RECIPES, recipe

__all__ = [
    "RECIPES", "digits", "digits_small", "fashion", "fashion_small", "films", "films_small", "image",
    "image_medium", "image_paper", "image_small", "listops", "listops_paper", "listops_small", "pathfinder",
    "pathfinder_medium", "pathfinder_paper", "pathfinder_small", "pathx", "pathx_small", "psmnist",
    "psmnist_random", "psmnist_random_small", "psmnist_small", "recipe", "retrieval", "retrieval_paper",
    "retrieval_small", "scifar", "scifar_small", "smnist", "smnist_small", "speech", "speech_small", "text",
    "text_medium", "text_medium_sparse", "text_paper", "text_small", "text_small_sparse",
]  # fmt: skip
