"""A small run whose task, classes and folder have hostile names, and what is counted on its page."""

import numpy as np

from resofire import data, train
from resofire.models import ClassifierConfig
from resofire.nn import PRFConfig

# A name that is a script, one that ends a string and an element, and letters beyond the basic plane.
CLASSES = ("<script>window.ran=1</script>", "\"'`</script><img src=x onerror=window.ran=2>", "🎉 %{x} &lt;b&gt;")
TASK = "<b>task</b> \"'&amp; </title><script>window.ran=3</script> 🎉"
FOLDER = "run <i>'quoted' & 🎉"


def task(count=60, steps=24, seed=0):
    draw = np.random.RandomState(seed)
    labels = draw.randint(0, 3, count)
    x = draw.randn(count, steps, 1).astype(np.float32) + labels[:, None, None]
    return data.from_arrays(x, [CLASSES[label] for label in labels], name=TASK, test=0.3, validation=0.2)


def config(**changes):
    neuron = PRFConfig(delta=(0.05, 0.5), threshold=0.2)
    model = ClassifierConfig(
        inputs=1, classes=3, features=8, depth=2, neuron=neuron, class_names=tuple(sorted(CLASSES))
    )
    settings = {"batch": 8, "steps": 8, "validate_every": 4, "seed": 3, "checkpoint_minutes": 0.0, "task": TASK}
    return train.RunConfig(**{"name": TASK, "model": model, **settings, **changes})


def visible_charts(page, selector):
    """How many charts have a size and something drawn in them."""
    return page.eval_on_selector_all(
        selector,
        "all => all.filter((each) => each.clientWidth > 100 && each.clientHeight > 60 && "
        "each.querySelector('path, polyline, image, canvas, rect')).length",
    )
