"""What a compiled program does, read from its text: kernels, the bytes that they move, the cycles a TPU would take.

Each kernel reads its operands and writes its results once. A loop counts as often as it goes round; what a kernel takes
out of an array by a dynamic slice, or puts into one, counts for itself, not for the array. Arrays that a TPU keeps in
its vector memory (memory space 1) are not moved.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

SIZES = {"pred": 1, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
SIZES |= {"f64": 8, "s64": 8, "u64": 8, "c64": 8}
NO_KERNELS = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id"}
NO_KERNELS |= {"while", "call", "conditional", "copy-done", "slice-done", "async-done", "all-gather-done", "iota"}

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\](\{[^}]*\})?")


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    type: str
    opcode: str
    operands: list[str]
    line: str


class Work(NamedTuple):
    """What one run of a program comes to."""

    kernels: int
    bytes: int
    cycles: int  # by the TPU compiler's cost model; 0 on other backends


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of each computation of a module, and the name of the entry."""
    found: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if match := COMPUTATION.match(line):
            current = found.setdefault(match[2], [])
            entry = match[2] if match[1] else entry
        elif current is not None and (match := INSTRUCTION.match(line)):
            operands = re.findall(r"%([\w.\-]+)", match[4].split("), ")[0])
            current.append(Instruction(match[1], match[2], match[3], operands, line))
    return found, entry


def work(text: str) -> Work:
    """The work of the module `text`."""
    found, entry = computations(text)
    return _work(found, entry)


def _work(found: dict[str, list[Instruction]], name: str) -> Work:
    kernels = moved = cycles = 0
    sizes: dict[str, int] = {}
    for instruction in found[name]:
        sizes[instruction.name] = _bytes(instruction.type)
        for inner, times in _inner(found, instruction):
            each = _work(found, inner)
            kernels, moved, cycles = (a + times * b for a, b in zip((kernels, moved, cycles), each, strict=True))
        if estimate := re.search(r'estimated_cycles":"(\d+)"', instruction.line):
            cycles += int(estimate[1])
        if instruction.opcode not in NO_KERNELS:
            kernels += 1
            moved += _moved(found, instruction, sizes)
    return Work(kernels, moved, cycles)


def _inner(found: dict[str, list[Instruction]], instruction: Instruction) -> Iterator[tuple[str, int]]:
    """The computations that an instruction runs, and how often."""
    named = lambda key: re.findall(rf"{key}=%?([\w.\-]+)", instruction.line)
    if instruction.opcode == "while":
        yield named("body")[0], _trips(found, instruction, named("condition")[0])
    elif instruction.opcode == "call":
        yield named("to_apply")[0], 1


def _trips(found: dict[str, list[Instruction]], loop: Instruction, condition: str) -> int:
    """How often a loop goes round: as the compiler says, or as its condition compares; 1 where neither tells."""
    if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.line):
        return int(known[1])
    called = [one for i in found[condition] for one in re.findall(r"calls=%?([\w.\-]+)", i.line)]
    lines = [i.line for name in (condition, *called) for i in found[name]]
    return max((int(n) for line in lines for n in re.findall(r"s32\[\]\S* constant\((\d+)\)", line)), default=1)


def _moved(found: dict[str, list[Instruction]], kernel: Instruction, sizes: dict[str, int]) -> int:
    """Bytes that a kernel reads and writes."""
    read = [sizes.get(name, 0) for name in kernel.operands]
    written = _bytes(kernel.type)
    if kernel.opcode.endswith("-start"):  # its type has the source as well as the destination
        arrays = sorted(_arrays(kernel.type), reverse=True)[:2]
        return sum(min(size for size, _ in arrays) for _, is_moved in arrays if is_moved)
    if kernel.opcode == "dynamic-slice":
        return 2 * written
    if kernel.opcode == "dynamic-update-slice":
        return 2 * read[1]
    if kernel.opcode != "fusion":
        return sum(read) + written
    called = _called(kernel)
    for position, whole in enumerate(read):
        part = _taken(found, called, _parameter(found, called, position))
        read[position] = whole if part is None else min(whole, part)
    size_inside = {i.name: _bytes(i.type) for i in found[called]}
    for update in (i for i in found[called] if i.opcode == "dynamic-update-slice"):
        written -= size_inside[update.name] - size_inside.get(update.operands[1], 0)
    return sum(read) + max(written, 0)


def _called(fusion: Instruction) -> str:
    return re.findall(r"calls=%?([\w.\-]+)", fusion.line)[0]


def _parameter(found: dict[str, list[Instruction]], name: str, position: int) -> str:
    """The name of a computation's parameter."""
    return next(i.name for i in found[name] if i.opcode == "parameter" and f"parameter({position})" in i.line)


def _taken(found: dict[str, list[Instruction]], name: str, array: str) -> int | None:
    """Bytes of `array` that a computation reads, where it takes parts alone; None: all of it."""
    total = 0
    for user in (i for i in found[name] if array in i.operands):
        part: int | None
        if user.opcode in ("dynamic-slice", "gather") and user.operands[0] == array:
            part = _bytes(user.type)
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == array:
            part = 0
        elif user.opcode == "bitcast":
            part = _taken(found, name, user.name)
        elif user.opcode == "fusion":
            inner = _called(user)
            places = [position for position, operand in enumerate(user.operands) if operand == array]
            parts = [_taken(found, inner, _parameter(found, inner, position)) for position in places]
            part = None if None in parts else sum(filter(None, parts))
        else:
            part = None
        if part is None:
            return None
        total += part
    return total


def _bytes(type_: str) -> int:
    """Of all arrays in a type, but for those in a TPU's vector memory."""
    return sum(size for size, is_moved in _arrays(type_) if is_moved)


def _arrays(type_: str) -> list[tuple[int, bool]]:
    """(bytes, whether outside of a TPU's vector memory) of each array in a type."""
    found = []
    for kind, shape, layout in ARRAY.findall(type_):
        size = SIZES.get(kind, 0)
        for side in filter(None, shape.split(",")):
            size *= int(side)
        found.append((size, "S(1)" not in layout))
    return found
