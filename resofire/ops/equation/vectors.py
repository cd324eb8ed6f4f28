"""More operations on the vectors of `neuron_scan.simd`: comparisons, choices, and functions lane by lane.

A mask is a vector of ones and zeros; LLVM turns it back into the comparison it came from.
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from ..neuron_scan.simd import Vector, _widen


def _choose(name: str, unordered: bool = False) -> Any:
    @intrinsic
    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        vector = x if isinstance(x, Vector) else y

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (_widen(context, builder, t, v, vector) for t, v in zip(sig.args, args, strict=True))
            compare = builder.fcmp_unordered if unordered else builder.fcmp_ordered
            return builder.select(compare(name, a, b), _filled(vector, 1.0), _filled(vector, 0.0))

        return vector(x, y), codegen

    return emit


def _filled(vector: Vector, value: float) -> Any:
    return ir.Constant(vector.llvm, [value] * vector.width)


gt, ge, lt, le, eq = (_choose(name) for name in (">", ">=", "<", "<=", "=="))
# Like torch's, true where either is NaN.
ne = _choose("!=", unordered=True)


@intrinsic
def where(typingctx: Any, mask: Any, then: Any, otherwise: Any) -> Any:
    """`then` in the lanes where the mask is 1, `otherwise` elsewhere."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        m, a, b = (_widen(context, builder, t, v, mask) for t, v in zip(sig.args, args, strict=True))
        return builder.select(builder.fcmp_unordered("!=", m, _filled(mask, 0.0)), a, b)

    return mask(mask, then, otherwise), codegen


@intrinsic
def spread(typingctx: Any, x: Any, number: Any) -> Any:
    """A vector like x with a number in every lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _widen(context, builder, sig.args[1], args[1], x)

    return x(x, number), codegen


def _extreme(name: str) -> Any:
    @intrinsic
    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        vector = x if isinstance(x, Vector) else y

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (_widen(context, builder, t, v, vector) for t, v in zip(sig.args, args, strict=True))
            # NaN in either is the result, as in torch.
            first = builder.or_(builder.fcmp_ordered(name, a, b), builder.fcmp_unordered("uno", a, a))
            return builder.select(first, a, b)

        return vector(x, y), codegen

    return emit


minimum, maximum = _extreme("<"), _extreme(">")


@intrinsic
def neg(typingctx: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fneg(args[0])

    return x(x), codegen


def _native(name: str) -> Any:
    """A function that machines have for whole vectors."""

    @intrinsic
    def emit(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(x.llvm, [x.llvm])
            suffix = f"v{x.width}f{x.dtype.bitwidth}"
            function = cgutils.get_or_insert_function(builder.module, kind, f"{name}.{suffix}")
            return builder.call(function, [args[0]])

        return x(x), codegen

    return emit


sqrt, absolute = _native("llvm.sqrt"), _native("llvm.fabs")


def _lanewise(function: Callable[..., float], count: int = 1) -> Any:
    """A function of the C library, called for each lane."""

    def emitter(typingctx: Any, x: Any, *more: Any) -> Any:
        scalar = typingctx.resolve_function_type(function, (x.dtype,) * count, {})

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            call = context.get_function(function, scalar)
            operands = [_widen(context, builder, t, v, x) for t, v in zip(sig.args, args, strict=True)]
            result = ir.Constant(x.llvm, ir.Undefined)
            for lane in range(x.width):
                at = ir.Constant(ir.IntType(32), lane)
                value = call(builder, [builder.extract_element(each, at) for each in operands])
                result = builder.insert_element(result, value, at)
            return result

        return x(x, *more), codegen

    if count == 1:
        return intrinsic(lambda typingctx, x: emitter(typingctx, x))
    return intrinsic(lambda typingctx, x, y: emitter(typingctx, x, y))


exp, log, sin, cos, tanh = (_lanewise(each) for each in (math.exp, math.log, math.sin, math.cos, math.tanh))
power = _lanewise(math.pow, 2)
