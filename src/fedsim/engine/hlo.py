"""The cost of a compiled program, read from its text: kernels, the bytes that they move, the cycles of a TPU.

Each kernel reads its operands and writes its results once. A loop's body counts as often as it runs. A dynamic slice of
an array counts with its own size, not the array's. Arrays that a TPU keeps in its vector memory (memory space 1) are
not moved.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

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

    @property
    def num_bytes(self) -> int:
        """Bytes of its result, except in a TPU's vector memory."""
        return sum(size for size, is_moved in array_sizes(self.type) if is_moved)

    def computation(self, key: str) -> str:
        """The computation that it runs as `key`, such as "body"."""
        return re.findall(rf"{key}=%?([\w.\-]+)", self.line)[0]


Module: TypeAlias = dict[str, list[Instruction]]  # of each computation by name


class Cost(NamedTuple):
    """The cost of running a program once."""

    kernels: int
    """Kernels that run."""
    bytes: int
    """Bytes that they move."""
    cycles: int
    """Cycles by the TPU compiler's cost model; 0 on other backends."""


def parse_module(text: str) -> tuple[Module, str]:
    """The instructions of each computation of a module, and the name of its entry."""
    module: Module = {}
    entry, current = "", None
    for line in text.splitlines():
        if match := COMPUTATION.match(line):
            current = module.setdefault(match[2], [])
            entry = match[2] if match[1] else entry
        elif current is not None and (match := INSTRUCTION.match(line)):
            operands = re.findall(r"%([\w.\-]+)", match[4].split("), ")[0])
            current.append(Instruction(match[1], match[2], match[3], operands, line))
    return module, entry


def analyze_cost(text: str) -> Cost:
    """The cost of the module `text`."""
    module, entry = parse_module(text)
    return _cost(module, entry)


def _cost(module: Module, name: str) -> Cost:
    kernels = moved = cycles = 0
    sizes: dict[str, int] = {}
    for instruction in module[name]:
        sizes[instruction.name] = instruction.num_bytes
        for inner, times in inner_computations(module, instruction):
            cost = _cost(module, inner)
            kernels, moved, cycles = (a + times * b for a, b in zip((kernels, moved, cycles), cost, strict=True))
        if estimate := re.search(r'estimated_cycles":"(\d+)"', instruction.line):
            cycles += int(estimate[1])
        if instruction.opcode not in NO_KERNELS:
            kernels += 1
            moved += _moved_bytes(module, instruction, sizes)
    return Cost(kernels, moved, cycles)


def inner_computations(module: Module, instruction: Instruction) -> Iterator[tuple[str, int]]:
    """The computations that an instruction runs, and how often."""
    if instruction.opcode == "while":
        yield instruction.computation("body"), _trip_count(module, instruction)
    elif instruction.opcode == "call":
        yield instruction.computation("to_apply"), 1


def _trip_count(module: Module, loop: Instruction) -> int:
    """How often a loop runs: as the compiler reports or its condition compares; 1 if neither is known."""
    if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.line):
        return int(known[1])
    condition = loop.computation("condition")
    called = [name for i in module[condition] for name in re.findall(r"calls=%?([\w.\-]+)", i.line)]
    lines = [i.line for name in (condition, *called) for i in module[name]]
    return max((int(n) for line in lines for n in re.findall(r"s32\[\]\S* constant\((\d+)\)", line)), default=1)


def _moved_bytes(module: Module, kernel: Instruction, sizes: dict[str, int]) -> int:
    """Bytes that a kernel reads and writes."""
    read = [sizes.get(name, 0) for name in kernel.operands]
    written = kernel.num_bytes
    if kernel.opcode.endswith("-start"):  # its type has the source as well as the destination
        arrays = sorted(array_sizes(kernel.type), reverse=True)[:2]
        return sum(min(size for size, _ in arrays) for _, is_moved in arrays if is_moved)
    if kernel.opcode == "dynamic-slice":
        return 2 * written
    if kernel.opcode == "dynamic-update-slice":
        return 2 * read[1]
    if kernel.opcode != "fusion":
        return sum(read) + written
    fused = kernel.computation("calls")
    for position, whole in enumerate(read):
        part = _sliced_bytes(module, fused, _parameter(module, fused, position))
        read[position] = whole if part is None else min(whole, part)
    fused_sizes = {i.name: i.num_bytes for i in module[fused]}
    for update in (i for i in module[fused] if i.opcode == "dynamic-update-slice"):
        written -= fused_sizes[update.name] - fused_sizes.get(update.operands[1], 0)
    return sum(read) + max(written, 0)


def _parameter(module: Module, name: str, position: int) -> str:
    """The name of a computation's parameter."""
    return next(i.name for i in module[name] if i.opcode == "parameter" and f"parameter({position})" in i.line)


def _sliced_bytes(module: Module, name: str, array: str) -> int | None:
    """Bytes of `array` that a computation reads if it reads only slices; None if it reads all of it."""
    total = 0
    for user in (i for i in module[name] if array in i.operands):
        parts: list[int | None]
        if user.opcode in ("dynamic-slice", "gather") and user.operands[0] == array:
            parts = [user.num_bytes]
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == array:
            parts = [0]
        elif user.opcode == "bitcast":
            parts = [_sliced_bytes(module, name, user.name)]
        elif user.opcode == "fusion":
            fused = user.computation("calls")
            positions = [position for position, operand in enumerate(user.operands) if operand == array]
            parts = [_sliced_bytes(module, fused, _parameter(module, fused, position)) for position in positions]
        else:
            parts = [None]
        for part in parts:
            if part is None:
                return None
            total += part
    return total


def array_sizes(type_: str) -> list[tuple[int, bool]]:
    """(bytes, whether outside of a TPU's vector memory) of each array in a type."""
    arrays = []
    for kind, shape, layout in ARRAY.findall(type_):
        size = SIZES.get(kind, 0)
        for side in filter(None, shape.split(",")):
            size *= int(side)
        arrays.append((size, "S(1)" not in layout))
    return arrays
