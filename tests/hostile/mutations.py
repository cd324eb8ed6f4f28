"""Damage to files: to any bytes, and to the structure of each format so that the damage reaches the reader behind it.

A mutation takes a `random.Random` and the bytes of a valid file, and returns other bytes. Mutations of a container
(`inside_gzip(text)`) repack what they changed, with right sizes and checksums.
"""

import gzip
import io
import json
import lzma
import pickletools
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from random import Random

Mutation = Callable[[Random, bytes], bytes]
# Numbers at which sizes and counts break.
NUMBERS = (
    0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 511, 512, 513, 1024, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -512, -(2**31), -(2**63),
)  # fmt: skip
TEXTS = (
    b"", b"0", b"-1", b"1e999", b"nan", b"inf", b"9" * 20, b"9" * 5000, b"\xff\xfe", b"\x00", b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80", b"../../../etc/passwd", b"/dev/zero", b"%s%n", b"{}", b"[]", b"null", b"A" * 10_000, b"\t",
    b"\r", b"\n",
)  # fmt: skip


def any_bytes(random: Random, raw: bytes) -> bytes:
    """One to three simple changes anywhere."""
    data = bytearray(raw)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        data = random.choice(SIMPLE)(random, data)
    return bytes(data)


def _place(random: Random, data: bytearray) -> int:
    # Half of the time near the beginning, where headers are.
    return random.randrange(min(len(data), 200) if random.random() < 0.5 else len(data)) if data else 0


def _span(random: Random, data: bytearray) -> tuple[int, int]:
    start = _place(random, data)
    return start, min(len(data), start + random.choice((1, 2, 4, 8, 16, 100, 512, 5000)))


def flip(random: Random, data: bytearray) -> bytearray:
    for _ in range(random.choice((1, 1, 2, 8))):
        if data:
            data[_place(random, data)] ^= 1 << random.randrange(8)
    return data


def overwrite(random: Random, data: bytearray) -> bytearray:
    start, end = _span(random, data)
    data[start:end] = bytes([random.choice((0, 255, 127, 128, 32, 48, random.randrange(256)))]) * (end - start)
    return data


def cut(random: Random, data: bytearray) -> bytearray:
    return data[: random.randrange(len(data) + 1)]


def remove(random: Random, data: bytearray) -> bytearray:
    start, end = _span(random, data)
    return data[:start] + data[end:]


def repeat(random: Random, data: bytearray) -> bytearray:
    start, end = _span(random, data)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 100)) + data[end:]


def splice(random: Random, data: bytearray) -> bytearray:
    start, end = _span(random, data)
    other = _place(random, data)
    data[other : other + end - start] = data[start:end]
    return data


def insert(random: Random, data: bytearray) -> bytearray:
    place = _place(random, data)
    return data[:place] + (random.choice(TEXTS) or random.randbytes(random.randrange(1, 64))) + data[place:]


def number(random: Random, data: bytearray) -> bytearray:
    """Overwrite a field of 1, 2, 4 or 8 bytes."""
    width = random.choice((1, 2, 4, 4, 4, 8))
    place = _place(random, data) // width * width if random.random() < 0.7 else _place(random, data)
    value = random.choice(NUMBERS) % 256**width
    data[place : place + width] = value.to_bytes(width, random.choice(("little", "big")))
    return data


def append(random: Random, data: bytearray) -> bytearray:
    return data + random.choice((bytes(1), bytes(5000), bytes(data), random.randbytes(100)))


def digits(random: Random, data: bytearray) -> bytearray:
    """Replace a number in the text by another one."""
    places = list(re.finditer(rb"\d+", bytes(data[:100_000])))
    if not places:
        return flip(random, data)
    match = random.choice(places)
    new = str(random.choice(NUMBERS)).encode() if random.random() < 0.7 else random.choice(TEXTS)
    return data[: match.start()] + new + data[match.end() :]


def nothing(random: Random, data: bytearray) -> bytearray:
    return bytearray(random.choice((b"", b"\0", b"<html>not found</html>", bytes(1000))))


SIMPLE = (flip, flip, overwrite, cut, remove, repeat, splice, insert, number, number, number, append, digits, nothing)


def lines(random: Random, raw: bytes) -> bytes:
    """Change a table of lines and fields."""
    rows = [line.split(b"\t") for line in raw.split(b"\n")]
    row = random.randrange(len(rows))
    field = random.randrange(len(rows[row]))
    kind = random.randrange(8)
    if kind == 0:
        rows[row][field] = random.choice(TEXTS)
    elif kind == 1:
        rows[row][field] = rows[row][field] * random.choice((2, 1000))
    elif kind == 2:
        rows[row].insert(field, random.choice(TEXTS))
    elif kind == 3:
        del rows[row][field]
    elif kind == 4:
        rows[row:row] = [rows[row]] * random.choice((1, 5))
    elif kind == 5:
        del rows[row]
    elif kind == 6:
        rows[row][field] = any_bytes(random, rows[row][field])
    else:
        rows[row][field] = b"[MAX " * random.choice((10, 5000)) + b"1 " + b"] " * random.choice((0, 10, 5000))
    return b"\n".join(b"\t".join(fields) for fields in rows)


def json_values(random: Random, raw: bytes) -> bytes:
    """Change a value somewhere in a JSON text; texts that hold JSON are descended into."""
    try:
        root = json.loads(raw)
    except (ValueError, RecursionError):
        return any_bytes(random, raw)
    if random.random() < 0.05:
        return random.choice((b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000, b'"' + b"x" * 10**6 + b'"', b"NaN"))
    holder = [root]
    places: list[tuple[object, object]] = [(holder, 0)]
    _walk(root, places)
    container, key = random.choice(places)
    kind = random.randrange(6)
    value = container[key]
    if isinstance(value, str) and value[:1] in "{[" and kind < 4:
        container[key] = json_values(random, value.encode()).decode("utf-8", "replace")
    elif kind == 0 and container is not holder:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[random.choice(("", "kind", "__class__", str(key) + "x"))] = value
    elif kind == 2:
        other, place = random.choice(places)
        container[key] = json.loads(json.dumps(other[place]))
    else:
        container[key] = random.choice(
            (
                None, True, False, "", "x" * 1000, "../x", [], {}, [[]], {"kind": "x"}, [None] * 100, float("nan"),
                float("inf"), 1e308, 0.5, -0.0, "9" * 30, 10**400, *NUMBERS,
            )
        )  # fmt: skip
    return json.dumps(holder[0]).encode("utf-8", "surrogatepass")


def _walk(value: object, places: list[tuple[object, object]]) -> None:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        places.append((value, key))
        _walk(value[key], places)


def either(*mutations: Mutation) -> Mutation:
    """One of several mutations."""
    return lambda random, raw: random.choice(mutations)(random, raw)


def inside_gzip(inner: Mutation) -> Mutation:
    return lambda random, raw: gzip.compress(inner(random, gzip.decompress(raw)), 1)


def inside_xz(inner: Mutation) -> Mutation:
    return lambda random, raw: lzma.compress(inner(random, lzma.decompress(raw)), preset=0)


def inside_zip(inner: Mutation) -> Mutation:
    """Change a member, its name, or the list of members."""

    def mutate(random: Random, raw: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
        place, kind = random.randrange(len(members)), random.randrange(8)
        name, contents = members[place]
        if kind == 0:
            del members[place]
        elif kind == 1:
            members.insert(random.randrange(len(members) + 1), (name, inner(random, contents)))
        elif kind == 2:
            members[place] = (random.choice((members[0][0], name + "x", "../" + name, "\0", "")), contents)
        else:
            members[place] = (name, inner(random, contents))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for each, data in members:
                info = zipfile.ZipInfo(each or "x")
                archive.writestr(info, data)
        return out.getvalue()

    return mutate


def inside_tar(inner: Mutation) -> Mutation:
    """Change a member, its header (with a right checksum), or the list of members."""

    def mutate(random: Random, raw: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            members = [
                (info.tobuf(tarfile.USTAR_FORMAT), archive.extractfile(info).read() if info.isfile() else b"")
                for info in archive
            ]
        place, kind = random.randrange(len(members)), random.randrange(9)
        header, contents = members[place]
        if kind == 0:
            del members[place]
        elif kind == 1:
            members.insert(random.randrange(len(members) + 1), members[place])
        elif kind == 2:
            extra = random.choice((b"L", b"K", b"x", b"g", b"S", b"V", b"M"))
            data = random.choice(RECORDS + TEXTS)
            size = b"%011o\0" % random.choice((len(data), len(data), 10**6))
            members.insert(place, (_header(header, {124: size, 156: extra}), data))
        elif kind < 6:
            start, width = random.choice(
                ((0, 100), (100, 8), (124, 12), (124, 12), (124, 12), (156, 1), (257, 8), (345, 155))
            )
            members[place] = (_header(header, {start: _field(random, width)}), contents)
        else:
            contents = inner(random, contents)
            members[place] = (_header(header, {124: b"%011o\0" % len(contents)}), contents)
        out = b"".join(head + data + bytes(-len(data) % 512) for head, data in members)
        return out + bytes(random.choice((0, 512, 1024, 1024, 1024, 10_000)))

    return mutate


RECORDS = (
    b"15 size=-1024\n", b"24 size=99999999999999\n", b"22 GNU.sparse.major=1\n", b"30 GNU.sparse.realsize=9999999\n",
    b"99999999999 path=x\n", b"0 =\n", b"12 path=a=b\n" * 10, b"19 GNU.sparse.map=\n",
)  # fmt: skip


def _field(random: Random, width: int) -> bytes:
    value = random.choice(NUMBERS)
    kind = random.randrange(5)
    if kind == 0:
        return (b"\x80" + abs(value).to_bytes(11, "big"))[:width].ljust(width, b"\0")
    if kind == 1:
        return (-max(1, abs(value))).to_bytes(12, "big", signed=True)[-width:]
    if kind == 2:
        return (b"%o" % abs(value))[:width].ljust(width, b"\0")
    if kind == 3:
        return random.randbytes(width)
    return random.choice(TEXTS)[:width].ljust(width, b"\0")


def _header(header: bytes, changes: dict[int, bytes]) -> bytes:
    block = bytearray(header)
    for start, value in changes.items():
        block[start : start + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % (sum(block[:512]))
    return bytes(block)


def npy(random: Random, raw: bytes) -> bytes:
    """Change the header of an array."""
    size = struct.unpack_from("<H", raw, 8)[0]
    header, data = raw[10 : 10 + size], raw[10 + size :]
    kind = random.randrange(6)
    if kind == 0:
        header = any_bytes(random, header)
    elif kind == 1:
        types = (b"|O", b"<U1000000000", b"|V0", b"<f16", b"<i1", b"M8[ns]", b"", b"<c8", b"|b1", b"[('a','<i4')]")
        header = re.sub(rb"'descr': '[^']*'", b"'descr': '" + random.choice(types) + b"'", header)
    elif kind == 2:
        shape = ", ".join(str(random.choice(NUMBERS)) for _ in range(random.randrange(5)))
        header = re.sub(rb"\([^)]*\)", f"({shape},)".encode(), header)
    elif kind == 3:
        header = header.replace(b"False", random.choice((b"True", b"None", b"'x'", b"1")))
    elif kind == 4:
        return raw[:8] + struct.pack("<H", random.choice(NUMBERS) % 65536) + raw[10:]
    else:
        return raw[:6] + bytes([random.randrange(5), random.randrange(2)]) + raw[8:]
    return raw[:8] + struct.pack("<H", min(len(header), 65535)) + header[:65535] + data


def png(random: Random, raw: bytes) -> bytes:
    """Change a chunk of a PNG, with a right checksum, or the list of chunks."""
    chunks, place = [], 8
    while place < len(raw):
        size = struct.unpack_from(">I", raw, place)[0]
        chunks.append((raw[place + 4 : place + 8], raw[place + 8 : place + 8 + size]))
        place += 12 + size
    number, kind = random.randrange(len(chunks)), random.randrange(6)
    name, data = chunks[number]
    if kind == 0:
        chunks.insert(number, random.choice(chunks))
    elif kind == 1:
        bomb = zlib.compress(bytes(10**7))
        extra = random.choice(
            ((b"zTXt", b"a\0\0" + bomb), (b"iCCP", b"a\0\0" + bomb), (b"iTXt", b"a\0\1\0\0\0" + bomb))
        )
        apng = random.choice(
            ((b"fdAT", bytes(4)), (b"acTL", bytes(8)), (b"fcTL", random.randbytes(26)), (b"eXIf", b"MM\0*"))
        )
        chunks.insert(number, random.choice((extra, apng, (b"tRNS", bytes(300)), (b"PLTE", bytes(5)), (b"pHYs", b""))))
    elif kind == 2:
        chunks[0] = (b"IHDR", bytes(any_bytes(random, chunks[0][1]))[:13].ljust(13, b"\1"))
    elif kind == 3:
        size = struct.pack(">II", *(random.choice(NUMBERS) % 2**32 for _ in range(2)))
        chunks[0] = (b"IHDR", random.choice((size, chunks[0][1][:8])) + random.randbytes(5))
    elif kind == 4 and name == b"IDAT":
        chunks[number] = (
            name,
            random.choice((zlib.compress(any_bytes(random, zlib.decompress(data))), zlib.compress(bytes(10**6)))),
        )
    else:
        chunks[number] = (bytes(any_bytes(random, name)[:4].ljust(4, b"a")), any_bytes(random, data))
    return raw[:8] + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def mat(random: Random, raw: bytes) -> bytes:
    """Change an element of a MATLAB file, compressed or not, and compress it again."""
    elements, place = [], 128
    while place + 8 <= len(raw):
        kind, size = struct.unpack_from("<II", raw, place)
        elements.append((kind, raw[place + 8 : place + 8 + size]))
        place += 8 + size
    number = random.randrange(len(elements))
    kind, data = elements[number]
    inner = zlib.decompress(data) if kind == 15 else struct.pack("<II", kind, len(data)) + data
    # The fields of an array are in its first bytes.
    inner = any_bytes(random, inner[:72]) + inner[72:] if random.random() < 0.8 else any_bytes(random, inner)
    if random.random() < 0.1:
        inner += bytes(10**7)
    packed = zlib.compress(inner, 1)
    changed = struct.pack("<II", 15, len(packed)) + packed if random.random() < 0.7 else inner
    parts = [struct.pack("<II", *(kind, len(data))) + data for kind, data in elements]
    parts[number] = changed
    return raw[:128] + b"".join(parts)


def pickled(random: Random, raw: bytes) -> bytes:
    """Insert, remove or repeat operations of a pickle."""
    places = [place for _, _, place in pickletools.genops(raw)]
    first, second = sorted(random.choices(places, k=2))
    kind = random.randrange(4)
    if kind == 0:
        return raw[:first] + random.choice(OPERATIONS) * random.choice((1, 1, 30, 1000)) + raw[first:]
    if kind == 1:
        return raw[:first] + raw[second:]
    if kind == 2:
        return raw[:second] + raw[first:second] * random.choice((1, 3)) + raw[second:]
    return any_bytes(random, raw)


OPERATIONS = (
    b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\x7f", b"B\xff\xff\xff\x7f", b"X\xff\xff\xff\xff", b"\x8e" + b"\xff" * 8,
    b"\x95" + b"\xff" * 8, b"2\x86", b"2\x87", b"(", b")", b"}", b"]", b"R", b"b", b"s", b"u", b"a", b"e", b"t", b"0",
    b"\x8a\xff" + bytes(255), b"\x8b\xff\xff\xff\x7f", b"cos\nsystem\n", b"\x93", b"\x94", b"N", b"\x88", b"K\x01",
    b"q\x00h\x00", b"\x81", b"\x92", b"i", b"o", b"1", b"P1\n", b"Q", b"\x82\x01", b"L" + b"9" * 6000 + b"L\n",
    b"I" + b"9" * 6000 + b"\n", b"F1e999\n",
)  # fmt: skip


def safetensors(random: Random, raw: bytes) -> bytes:
    """Change the header of a safetensors file, with a right length."""
    size = struct.unpack_from("<Q", raw)[0]
    header = json_values(random, raw[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + raw[8 + size :]
