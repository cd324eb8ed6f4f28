"""The LIF as one fused walk on the CPU. The kernels are the family's, in `resofire.ops.fused.scan`."""

from ..fused import run_scan as run
from ..fused import why_not_scan as why_not

__all__ = ["run", "why_not"]
