"""Vectors of which only the first lanes are in memory, for Numba: the last tile of a row that is no multiple of one."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..neuron_scan.simd import Vector, _address


def _mask(builder: Any, vector: Vector, count: Any) -> Any:
    """One bit per lane, set in the first `count`."""
    lanes = ir.VectorType(ir.IntType(32), vector.width)
    undefined, first = ir.Constant(lanes, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    number = builder.trunc(count, ir.IntType(32))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.width), [0] * vector.width)
    limit = builder.shuffle_vector(builder.insert_element(undefined, number, first), undefined, everywhere)
    return builder.icmp_signed("<", ir.Constant(lanes, list(range(vector.width))), limit)


def _function(builder: Any, name: str, vector: Vector, result: Any, parameters: list[Any]) -> Any:
    kind = ir.FunctionType(result, parameters)
    suffix = f"v{vector.width}f{vector.dtype.bitwidth}.p0"
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.{name}.{suffix}")


@intrinsic
def load_some(typingctx: Any, array: Any, index: Any, count: Any) -> Any:
    """The vector at array[index:], 0 in all lanes but the first `count`, which alone are read."""
    vector = Vector(array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _address(context, builder, args[0], sig.args[0], args[1], vector.llvm)
        word, mask = ir.IntType(32), _mask(builder, vector, args[2])
        parameters = [place.type, word, mask.type, vector.llvm]
        function = _function(builder, "load", vector, vector.llvm, parameters)
        zero = ir.Constant(vector.llvm, [0.0] * vector.width)
        return builder.call(function, [place, word(array.dtype.bitwidth // 8), mask, zero])

    return vector(array, types.intp, types.intp), codegen


@intrinsic
def store_some(typingctx: Any, array: Any, index: Any, value: Any, count: Any) -> Any:
    """Writes the first `count` lanes of a vector to array[index:]."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _address(context, builder, args[0], sig.args[0], args[1], value.llvm)
        word, mask = ir.IntType(32), _mask(builder, value, args[3])
        function = _function(builder, "store", value, ir.VoidType(), [value.llvm, place.type, word, mask.type])
        builder.call(function, [args[2], place, word(value.dtype.bitwidth // 8), mask])
        return context.get_dummy_value()

    return types.void(array, types.intp, value, types.intp), codegen
