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
    called = re.search(r"calls=%?([\w.\-]+)", kernel.line)
    if kernel.opcode == "dynamic-slice":
        return 2 * written
    if kernel.opcode == "dynamic-update-slice":
        return 2 * read[1]
    if kernel.opcode != "fusion" or not called:
        return sum(read) + written
    inside = found[called[1]]
    number = {i.name: int(i.line.split("parameter(")[1].split(")")[0]) for i in inside if i.opcode == "parameter"}
    size_inside = {i.name: _bytes(i.type) for i in inside}
    for name, position in number.items():
        users = [i for i in inside if name in i.operands]
        if users and all(i.opcode in ("dynamic-slice", "gather") and i.operands[0] == name for i in users):
            read[position] = sum(size_inside[i.name] for i in users)
        elif any(i.opcode == "dynamic-update-slice" and i.operands[0] == name for i in users):
            read[position] = 0
    for update in (i for i in inside if i.opcode == "dynamic-update-slice"):
        written -= size_inside[update.name] - size_inside.get(update.operands[1], 0)
    return sum(read) + max(written, 0)


def _bytes(type_: str) -> int:
    """Of all arrays in a type, but for those in a TPU's vector memory."""
    total = 0
    for kind, shape, layout in ARRAY.findall(type_):
        size = 0 if "S(1)" in layout else SIZES.get(kind, 0)
        for side in filter(None, shape.split(",")):
            size *= int(side)
        total += size
    return total
