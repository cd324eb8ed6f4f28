"""The PRF as fused kernels on the GPU. The kernels are the family's, in `resofire.ops.fused.triton`."""

from ..fused import run_triton as run
from ..fused import why_not_triton as why_not

__all__ = ["run", "why_not"]
