"""Pieces of C text that fixed point and floats share: names, arrays, strings."""

import re
from collections.abc import Iterable

KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)


def identifier(name: str) -> str:
    """Turn any name into a C identifier."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not cleaned[:1].isalpha() or cleaned in KEYWORDS.split():
        cleaned = f"network_{cleaned}"
    return cleaned[:63]


def require_identifier(name: object) -> None:
    """Refuse a name that cannot be the prefix of C identifiers."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name) or name in KEYWORDS.split():
        raise ValueError(f"c: name must be a C identifier that begins with a letter, got {name!r}")


def lines(numbers: Iterable[str]) -> str:
    """The elements of an array, each followed by a comma, in lines of at most 116 characters."""
    full, line = [], "   "
    for number in numbers:
        if len(line) + len(number) > 116:
            full.append(line)
            line = "   "
        line += f" {number},"
    return "\n".join([*full, line]) + "\n"


def string(text: str) -> str:
    """A C string literal: bytes that are not plain ASCII as octal escapes, and no trigraphs."""
    plain = set(range(32, 127)) - {*b'"\\?'}
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()) + '"'


def best(name: str, classes: int, kind: str) -> str:
    """The function that returns the class with the largest score."""
    return (
        f"static inline int {name}_best(const {name}_state *s)\n{{\n"
        f"    {kind} scores[{classes}];\n    int best = 0;\n\n"
        f"    {name}_scores(s, scores);\n    for (int k = 1; k < {classes}; k++)\n"
        f"        if (scores[k] > scores[best])\n            best = k;\n    return best;\n}}\n\n"
    )


def class_names(name: str, names: tuple[str, ...] | None) -> str:
    """The function that returns the name of a class; nothing without names."""
    if names is None:
        return ""
    listed = "".join(f"        {string(each)},\n" for each in names)
    return (
        f"/* What class k, such as {name}_best returns, is called (UTF-8). */\n"
        f"static inline const char *{name}_class_name(int k)\n{{\n"
        f"    static const char *const names[{len(names)}] = {{\n{listed}    }};\n\n"
        f"    return names[k];\n}}\n\n"
    )
