"""Optional dependencies: the extra of the distribution that installs each package. Imports nothing of the library."""

import importlib.util

# By import name. `import resofire.nn` needs none of them.
EXTRAS = {
    "train": ("filelock", "lightning_fabric", "rich", "tensorboardX", "tyro"),
    "data": ("PIL", "filelock", "h5py", "rich", "scipy", "sklearn"),
    "export": ("h5py", "nir", "onnx", "onnxruntime", "scipy"),
    "report": ("jinja2", "matplotlib", "plotly"),
    "gpu": ("triton",),
}


class MissingExtraError(ModuleNotFoundError):
    """A package of an extra is not installed. Its text is one sentence that says what to install."""


def require(extra: str, owner: str) -> None:
    """Raise unless the packages of an extra are installed, before one of them fails to import.

    Args:
        extra: One of EXTRAS.
        owner: What needs it, such as "resofire.train".

    Raises:
        MissingExtraError: A package is not installed.
    """
    for package in EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(f"{owner} needs {package}: pip install 'resofire[{extra}]'", name=package)


def advice(package: str | None) -> str | None:
    """How to install a package that could not be imported; None if no extra has it."""
    top = (package or "").split(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if top in packages), None)
    return None if extra is None else f"{top} is not installed: pip install 'resofire[{extra}]'"
