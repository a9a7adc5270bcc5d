"""Compiles one gradient step of models in lockstep for accelerators that this machine does not have, and its cost.

For each device, network, precision and width: fedsim's layers in the form for that device, in the form for CPUs
("patches"), and flax's layers under plain `vmap`. Prints a JSON line for each; `--table` prints the lines of a file as
a table. Needs libtpu for a TPU and JAX's CUDA plugin for a GPU (`pip install 'fedsim-jax[tpu-compile,cuda]'`).

- `gigabytes`, on a GPU: operands and results of all kernels, in loops once for each iteration.
- `cycle_ms`, on a TPU: the compiler's estimate, the cycles of all kernels at 1.5 GHz (from v5e's peak of 197 TFLOP/s
  with four 128 x 128 units).
- `optimal_ms`: the fractional part of the compiler's `optimal_seconds` for a step without loops (each operation that it
  cannot estimate counts -1); missing for the LSTM.

`--family NAME` compiles the chunk of `configs/robustness/grid.toml` instead, as one program for all its rules under the
attacks of the set NAME (see `FAMILIES`), and counts the conditionals in the compiled text by their branches.
"""

import argparse
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import measure
import numpy as np
from flax_networks import FlaxLSTM, flax_cifar10_cnn, flax_femnist_cnn
from resnet import ResNet18

import fedsim
from fedsim.config import toml
from fedsim.engine import forecast, hlo, make_plan, targets
from fedsim.engine.compiling import GroupCompiler
from fedsim.engine.layout import Machine
from fedsim.models import CharLSTM, Cifar10CNN, FemnistCNN

FORMS = ["fedsim", "patches", "flax"]
PRECISIONS = ["float32", "bfloat16"]
CLOCK = 1.5e9  # of a TPU v5e
ROW = ("target", "network", "width", "precision")
GRID = Path(__file__).parents[1] / "configs" / "robustness" / "grid.toml"
FAMILIES = {  # rules, attacks; None: all of the grid
    "pair": (["trimmed_mean"], ["alie"]),
    "small": (["fedavg", "trimmed_mean", "rfa", "arfl"], ["sign_flip", "alie", "fake_loss"]),
    "attacks": (["trimmed_mean"], None),
    "grid": (None, None),
}
KEYS = ("target", "network", "width", "batch_size", "precision", "layers")


# input, batch size, fedsim's module, flax's module
NETWORKS: dict[str, tuple[np.ndarray, int, nn.Module, nn.Module]] = {
    "cifar10_cnn": (np.zeros((32, 32, 3), np.uint8), 64, Cifar10CNN(10), flax_cifar10_cnn()),
    "femnist_cnn": (np.zeros((28, 28, 1), np.uint8), 64, FemnistCNN(62), flax_femnist_cnn()),
    "char_lstm": (np.zeros(80, np.int32), 10, CharLSTM(80, dropout_rate=0.0), FlaxLSTM()),
    "resnet18": (np.zeros((32, 32, 3), np.uint8), 32, ResNet18(), ResNet18(layers="flax")),
}


def main() -> None:
    """Parses the arguments and compiles what is not in the file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", default=["v5e", "h100"], metavar="DEVICE")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--widths", nargs="+", type=int, default=[20, 128])
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS, metavar="NAME")
    parser.add_argument("--layers", nargs="+", default=FORMS, choices=FORMS, metavar="NAME")
    parser.add_argument("--out", type=Path, help="file to append lines to; measurements in it are skipped")
    parser.add_argument("--family", choices=list(FAMILIES), metavar="NAME", help="compile a grid as one program")
    parser.add_argument("--table", action="store_true", help="only print the lines of --out as a table")
    options = parser.parse_args()
    text = options.out.read_text() if options.out and options.out.exists() else ""
    lines = [line for line in map(json.loads, text.splitlines()) if "family" not in line]
    if options.table:
        print_table(lines)
        return
    targets.disable_accelerators()
    for name in options.targets:
        if options.family:
            measure.line(options.out, benchmark="targets", target=name, **compile_family(name, options.family))
            continue
        device = targets.devices(targets.parse(name))[0]
        for network in options.networks:
            for width in options.widths:
                for precision in options.precisions:
                    for layers in options.layers:
                        batch_size = NETWORKS[network][1]
                        settings = dict(zip(KEYS, (name, network, width, batch_size, precision, layers), strict=True))
                        if not any(all(line[key] == settings[key] for key in KEYS) for line in lines):
                            costs = compile_step(device, network, width, precision, layers, targets.CHIPS[name].backend)
                            measure.line(options.out, benchmark="targets", **settings, **costs)


def compile_step(
    device: jax.Device, network: str, width: int, precision: str, layers: str, backend: str
) -> dict[str, Any]:
    """Compiles a step; time, memory and traffic as the compiler reports them, or its `problem`."""
    example, batch_size, fedsim_module, flax_module = NETWORKS[network]
    form = {"fedsim": backend, "patches": "cpu", "flax": None}[layers]
    module = flax_module if layers == "flax" else fedsim_module
    task = fedsim.classification(module, example, dtype=jnp.dtype(precision), backend=form)
    x, y = np.zeros((batch_size, *example.shape), example.dtype), np.zeros(batch_size, np.int32)
    lowered = forecast.lower_step(task, x, y, width, device)
    flops = width * forecast.step_flops(fedsim.classification(fedsim_module, example, backend="cpu"), x, y)
    started = time.perf_counter()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"problem": str(error).splitlines()[0][:200]}
    seconds = time.perf_counter() - started
    work = hlo.analyze_cost(program.as_text() or "")
    memory = program.memory_analysis().temp_size_in_bytes / 2**20
    result: dict[str, Any] = {"compile_seconds": seconds, "gigaflops": flops / 1e9, "memory_mebibytes": memory}
    if backend == "gpu":
        result |= {"gigabytes": work.bytes / 1e9, "kernels": work.kernels}
    else:
        result["cycle_ms"] = work.cycles / CLOCK * 1e3
        costs = program.cost_analysis() or {}
        if network != "char_lstm" and "optimal_seconds" in costs:
            result["optimal_ms"] = costs["optimal_seconds"] % 1 * 1e3
    return result


def compile_family(name: str, family_name: str) -> dict[str, Any]:
    """Compiles the largest family of the grid for the device `name`: seconds, memory, conditionals by branches."""
    chip, (rules, attacks) = targets.CHIPS[name], FAMILIES[family_name]
    chosen = {"server.aggregator": rules, "attack.kind": attacks}
    overrides = {key: fedsim.sweep(names) for key, names in chosen.items() if names}
    plan = make_plan(toml.read(GRID, overrides), Machine(chip.backend, 1, chip.memory))
    num_branches = lambda family: len(family.servers) * len(family.attacks)
    sizes = [(num_branches(family), len(group.runs)) for family, group in zip(plan.families, plan.groups, strict=True)]
    number = sizes.index(max(sizes))
    family, group = plan.families[number], plan.groups[number]
    devices = targets.devices(targets.parse(name))
    compiler = GroupCompiler(plan.configs(group), plan.dataset(group), group.layout, devices, family)
    started = time.perf_counter()
    chunk = compiler.lower()["chunk"]
    traced = time.perf_counter()
    program = chunk.compile()
    compiled = time.perf_counter()
    text = program.as_text() or ""
    conditionals = re.findall(r"conditional\(.*?(?:branch_computations=\{([^}]*)\}|true_computation=)", text)
    branches = Counter(len(names.split(",")) if names else 2 for names in conditionals)
    return {
        "family": family_name,
        "branches": str(family),
        "width": [group.layout.client_width, group.layout.run_width],
        "trace_seconds": traced - started,
        "compile_seconds": compiled - traced,
        "memory_mebibytes": program.memory_analysis().temp_size_in_bytes / 2**20,
        "conditionals": {str(size): number for size, number in sorted(branches.items())},
    }


def print_table(lines: list[dict[str, Any]]) -> None:
    """Prints a Markdown table: a row for each device, network, width and precision."""
    print("| device | network | width | precision | " + " | ".join(FORMS) + " |")
    print("| :--- | :--- | ---: | :--- | " + " | ".join(["---:"] * len(FORMS)) + " |")
    rows = dict.fromkeys(tuple(line[key] for key in ROW) for line in lines)
    for row in rows:
        same = {line["layers"]: line for line in lines if row == tuple(line[key] for key in ROW)}
        print(
            "| " + " | ".join(map(str, row)) + " | " + " | ".join(format_cell(same.get(form)) for form in FORMS) + " |"
        )


def format_cell(line: dict[str, Any] | None) -> str:
    """For example "2.63 / 3.89 ms" on a TPU, "2.18 GB, 47 kernels" on a GPU."""
    if line is None or "problem" in line:
        return "" if line is None else "does not fit"
    if "cycle_ms" not in line:
        return f"{line['gigabytes']:.3g} GB, {line['kernels']} kernels"
    optimal = f" / {line['optimal_ms']:.3g}" if "optimal_ms" in line else ""
    return f"{line['cycle_ms']:.3g}{optimal} ms"


if __name__ == "__main__":
    main()
