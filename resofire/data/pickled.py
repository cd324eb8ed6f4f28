"""Pickled dictionaries of arrays and lists, read without running or importing anything and in bounded memory.

Python's unpickler allocates what an operation asks for (ten bytes can ask for gigabytes), and a small pickle can nest
tuples so that hashing one takes for ever. This machine knows the operations that files of data need, keeps arrays as
their bytes, and accepts texts as keys only.
"""

import pickletools
from collections.abc import Callable
from typing import Any

# Operations by what they do to the stack, as pickletools names them.
PUSHED = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8",
}  # fmt: skip
CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
IGNORED = ("PROTO", "FRAME")
RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
NDARRAY, DTYPE, ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"


class PickledArray:
    """A numpy array as a pickle describes it: `shape`, `kind` of its dtype, Fortran order, bytes."""

    shape: tuple[Any, ...] = ()
    kind = ""
    fortran = False
    raw = b""


class _Name(str):
    """A name to import, which is never imported."""

    __slots__ = ()


class _Type(str):
    """A dtype, by its name."""

    __slots__ = ()


def unpickle(raw: bytes) -> Any:
    """Read a pickle (protocol 0 to 4) of dictionaries, lists, tuples, texts, numbers and numpy arrays.

    Keys of dictionaries become texts, also where the pickle has bytes; arrays become `PickledArray`s.

    Raises:
        ValueError: The pickle is damaged or needs something else.
    """
    machine = _Machine(len(raw))
    try:
        for operation, argument, _ in pickletools.genops(raw):
            if operation.name == "STOP":
                (result,) = machine.stack
                return result
            machine.step(operation.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
        raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None
    raise ValueError("it has no end")


class _Machine:
    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        # Bytes that texts may be encoded to, which a repeated operation would multiply.
        self.left = size

    def step(self, name: str, argument: Any) -> None:
        stack, memo = self.stack, self.memo
        if name in PUSHED:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in TUPLES:
            stack.append(tuple(self.pop(TUPLES[name])))
        elif name == "TUPLE":
            stack.append(tuple(self.marked()))
        elif name == "LIST":
            stack.append(self.marked())
        elif name == "DICT":
            stack.append(_pairs(self.marked()))
        elif name in ("APPEND", "APPENDS"):
            values = self.pop(1) if name == "APPEND" else self.marked()
            _require(stack[-1], list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = self.pop(2) if name == "SETITEM" else self.marked()
            _require(stack[-1], dict).update(_pairs(values))
        elif name == "GLOBAL":
            stack.append(_known(argument))
        elif name == "STACK_GLOBAL":
            stack.append(_known(" ".join(_require(part, str) for part in self.pop(2))))
        elif name == "REDUCE":
            function, arguments = self.pop(2)
            stack.append(self.call(_require(function, _Name), _require(arguments, tuple)))
        elif name == "BUILD":
            (state,) = self.pop(1)
            _build(stack[-1], _require(state, tuple))
        elif name not in IGNORED:
            raise ValueError(f"it has the operation {name}, which no such file needs")

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("an operation lacks its arguments")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def marked(self) -> list[Any]:
        return self.pop(len(self.stack) - self.marks.pop())

    def call(self, function: str, arguments: tuple[Any, ...]) -> Any:
        if function in RECONSTRUCT:
            return PickledArray()
        if function == DTYPE:
            return _Type(_text(arguments[0]))
        if function == ENCODE:
            text = _require(arguments[0], str)
            self.left -= len(text)
            if self.left < 0:
                raise ValueError("it encodes more text than it has")
            return text.encode("latin1")
        raise ValueError(f"it calls {function}, which no such file needs")


def _known(name: str) -> _Name:
    if name not in (*RECONSTRUCT, NDARRAY, DTYPE, ENCODE):
        raise ValueError(f"it asks for {name.replace(' ', '.')[:100]}, which no such file needs")
    return _Name(name)


def _require(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"an operation needs a {kind.__name__}, got {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(_require(value, str))


def _pairs(values: list[Any]) -> dict[str, Any]:
    return {_text(key): value for key, value in zip(values[::2], values[1::2], strict=True)}


def _build(target: Any, state: tuple[Any, ...]) -> None:
    if isinstance(target, _Type):
        return
    _, shape, kind, fortran, raw = state
    if isinstance(raw, str):  # of Python 2
        raw = raw.encode("latin1")
    array = _require(target, PickledArray)
    array.shape, array.fortran = _require(shape, tuple), bool(fortran)
    array.kind, array.raw = str(_require(kind, _Type)), _require(raw, bytes)
