"""Data sets: sources -> arrays -> batches.

`load(name)` opens a registered data set, `dataset` and `register` add your own, `from_arrays` makes a task of arrays in
memory, `from_path` of your own files. Each family of data sets has a file, imported here so that it registers; heavy
packages (scipy, scikit-learn, Pillow, Numba, h5py) are imported only when a set is prepared.
"""

from . import aan, cifar, digits, ecg, imdb, listops, mnist, pathfinder, speech
from .arrays import from_arrays
from .own import from_path
from .registry import NAMES, about, dataset, load, register
from .task import Batch, DataError, Form, Split, Task, statistics

__all__ = [
    "NAMES", "Batch", "DataError", "Form", "Split", "Task", "aan", "about", "cifar", "dataset", "digits", "ecg",
    "from_arrays", "from_path", "imdb", "listops", "load", "mnist", "pathfinder", "register", "speech", "statistics",
]  # fmt: skip
