"""What a compiled program sends between hosts, read from its text."""

import math
import re
from collections.abc import Sequence

import numpy as np

from fedsim.engine.hlo import Instruction, Module, array_sizes, inner_computations, parse_module

COLLECTIVES = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute"}
GROUPS = re.compile(r"(?:replica_groups|source_target_pairs)=(\{\{[\d,{}]*\}\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)")


def received_bytes(text: str, hosts: Sequence[int]) -> int:
    """Bytes that a device receives from other hosts while the module `text` runs; the device of partition i is on
    `hosts[i]`. Each device of a collective is taken to have an equal part of its result.
    """
    module, entry = parse_module(text)
    return round(_computation_bytes(module, entry, hosts, set()))


def _computation_bytes(module: Module, name: str, hosts: Sequence[int], fused: set[str]) -> float:
    """As `received_bytes`, for a computation. A TPU's compiler may cut a collective into fusions of one channel: those
    that are counted are in `fused`.
    """
    received = 0.0
    for instruction in module[name]:
        for inner, times in inner_computations(module, instruction):
            received += times * _computation_bytes(module, inner, hosts, fused)
        if instruction.opcode == "fusion":
            for part in filter(_is_collective, module[instruction.computation("calls")]):
                channel = re.findall(r"channel_id=\d+", part.line)[0]
                received += 0 if channel in fused else _instruction_bytes(part, hosts)
                fused.add(channel)
        elif _is_collective(instruction):
            received += _instruction_bytes(instruction, hosts)
    return received


def _is_collective(instruction: Instruction) -> bool:
    return instruction.opcode.removesuffix("-start") in COLLECTIVES


def _instruction_bytes(collective: Instruction, hosts: Sequence[int]) -> float:
    groups = _groups(collective.line) or [list(range(len(hosts)))]
    return _result_bytes(collective) * max(_foreign_share([hosts[device] for device in group]) for group in groups)


def _result_bytes(collective: Instruction) -> int:
    """The type of the start of an asynchronous collective has its operands first, then its results."""
    sizes, number = [size for size, _ in array_sizes(collective.type)], len(collective.operands)
    return sum(sizes[number : 2 * number] if collective.opcode.endswith("-start") else sizes)


def _foreign_share(hosts: Sequence[int]) -> float:
    """The largest share of the devices on `hosts` that are on other hosts than one of them."""
    return 1 - min(map(hosts.count, hosts)) / len(hosts)


def _groups(line: str) -> list[list[int]]:
    """The groups of devices of a collective, as lists or as a permuted range; none if all devices are one group."""
    match = GROUPS.search(line)
    if match is None:
        return []
    if match[1].startswith("{"):
        return [[int(device) for device in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", match[1])]
    shape, sides, *axes = ([int(side) for side in part.split(",")] for part in re.findall(r"[\d,]*\d", match[1]))
    devices = np.arange(math.prod(sides)).reshape(sides).transpose(axes[0] if axes else None)
    groups: list[list[int]] = devices.reshape(shape).tolist()
    return groups
