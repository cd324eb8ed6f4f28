"""Vectors for Numba: a value that holds BYTES bytes of lanes (32 float32 or 16 float64) and stays in registers.

Numba leaves vectorising to LLVM's loop pass, which keeps a lane loop inside a time loop and therefore sends the state
through memory at every step. With the vector as a value of its own the time loop is the inner one. LLVM splits a
vector into whatever the machine has. + - * / work between vectors and with numbers; the rest is below. Nothing here
checks a bound: the caller owns the memory.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

BYTES = 128
# Of kernels whose values would not fit into the registers otherwise.
FEW_BYTES = 64
# A multiply and an add may be rounded once, as one instruction; nothing else is relaxed.
_FLAGS = ("contract",)


class Vector(types.Type):
    def __init__(self, dtype: types.Float, size: int = BYTES) -> None:
        self.dtype = dtype
        self.width = size * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype}, {self.width})")

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(ir.FloatType() if self.dtype == types.float32 else ir.DoubleType(), self.width)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, fe_type.llvm)


def _widen(context: Any, builder: Any, kind: types.Type, value: Any, vector: Vector) -> Any:
    """The value itself if it is a vector, else a vector with the number in every lane."""
    if isinstance(kind, Vector):
        return value
    number = context.cast(builder, value, kind, vector.dtype)
    undefined = ir.Constant(vector.llvm, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.width), [0] * vector.width)
    return builder.shuffle_vector(first, undefined, everywhere)


def _operator(op: Callable[..., Any], instruction: str) -> None:
    @intrinsic
    def emit(typingctx: Any, x: Any, y: Any) -> Any:
        vector = x if isinstance(x, Vector) else y

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, b = (_widen(context, builder, t, v, vector) for t, v in zip(sig.args, args, strict=True))
            return getattr(builder, instruction)(a, b, flags=_FLAGS)

        return vector(x, y), codegen

    @overload(op)
    def _(x, y):  # Numba wants the same parameters as in the lambda, annotations included
        if isinstance(x, Vector) or isinstance(y, Vector):
            return lambda x, y: emit(x, y)
        return None


for _op, _instruction in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv"),
):  # fmt: skip
    _operator(_op, _instruction)


def _address(context: Any, builder: Any, array: Any, sig: Any, index: Any, kind: Any) -> Any:
    data = array if isinstance(sig, types.CPointer) else context.make_array(sig)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


@intrinsic
def pointer(typingctx: Any, array: Any) -> Any:
    """The address of array[0], which the functions below take instead of an array, and which can be indexed like one.

    Numba counts the references to arrays that go through branches, and every count is a locked instruction that waits
    for all stores before it. Pointers count nothing. The array must outlive them: see `hold`.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if isinstance(sig.args[0], types.CPointer):
            return args[0]
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def hold(typingctx: Any, array: Any) -> Any:
    """Does nothing, but keeps an array that the kernel made alive up to here, for its pointers."""
    return types.void(array), lambda context, builder, sig, args: context.get_dummy_value()


def loading(size: int) -> Any:
    """`load` for vectors of `size` bytes."""

    @intrinsic
    def load(typingctx: Any, array: Any, index: Any) -> Any:
        """The vector at array[index:]."""
        vector = Vector(array.dtype, size)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            place = _address(context, builder, args[0], sig.args[0], args[1], vector.llvm)
            return builder.load(place, align=array.dtype.bitwidth // 8)

        return vector(array, types.intp), codegen

    return load


load, load_few = loading(BYTES), loading(FEW_BYTES)


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Writes a vector to array[index:]."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _address(context, builder, args[0], sig.args[0], args[1], value.llvm)
        builder.store(args[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def stream(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Writes a vector past the caches, to an address that must be a multiple of 64 bytes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = _address(context, builder, args[0], sig.args[0], args[1], value.llvm)
        written = builder.store(args[2], place, align=64)
        once = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        written.set_metadata("nontemporal", once)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


def prefetching(size: int) -> Any:
    """`prefetch` for vectors of `size` bytes."""

    @intrinsic
    def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
        """Asks for the vector at array[index:] to be brought near. The address need not be valid."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            place = _address(context, builder, args[0], sig.args[0], args[1], ir.IntType(8))
            # Read, into the second-level cache, as data; a line is 64 bytes.
            for line in range(0, size, 64):
                near = builder.gep(place, [ir.Constant(ir.IntType(64), line)])
                builder.call(function, [near, word(0), word(2), word(1)])
            return context.get_dummy_value()

        return types.void(array, types.intp), codegen

    return prefetch


prefetch, prefetch_few = prefetching(BYTES), prefetching(FEW_BYTES)


@intrinsic
def zeros_like(typingctx: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(x.llvm, [0.0] * x.width)

    return x(x), codegen


@intrinsic
def add_wide(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Adds a vector to float64 sums at array[index:]."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = ir.VectorType(ir.DoubleType(), value.width)
        place = _address(context, builder, args[0], sig.args[0], args[1], wide)
        term = args[2] if args[2].type == wide else builder.fpext(args[2], wide)
        builder.store(builder.fadd(builder.load(place, align=8), term), place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def store_mask(typingctx: Any, array: Any, index: Any, x: Any, y: Any) -> Any:
    """Writes one bit per lane, x ≥ y, to the bytes at array[index:]; the first lane is the lowest bit."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        b = _widen(context, builder, sig.args[3], args[3], x)
        bits = ir.IntType(x.width)
        place = _address(context, builder, args[0], sig.args[0], args[1], bits)
        builder.store(builder.bitcast(builder.fcmp_ordered(">=", args[2], b), bits), place, align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, x, y), codegen


@intrinsic
def lowest(typingctx: Any, word: Any) -> Any:
    """The place of the lowest bit that is set in a word that is not 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@intrinsic
def differs(typingctx: Any, x: Any, y: Any) -> Any:
    """One bit per lane, x ≠ y (also where either is NaN), as a word; the first lane is the lowest bit."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        b = _widen(context, builder, sig.args[1], args[1], x)
        bits = builder.bitcast(builder.fcmp_unordered("!=", args[0], b), ir.IntType(x.width))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(x, y), codegen
