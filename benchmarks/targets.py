"""One gradient step of models in lockstep, compiled for accelerators that are not there: what it would cost.

For each device, network, precision and width, with fedsim's layers in the form for that device, in the form for CPUs
("patches"), and with flax's layers under plain `vmap`. Prints a JSON line each, and with `--table` the table of lines
that were kept. Needs libtpu for a TPU and JAX's CUDA plugin for a GPU (`pip install 'fedsim[tpu-compile,cuda]'`).

- `gigabytes`, on a GPU: operands and results of all kernels, a loop's as often as it goes round.
- `cycle_ms`, on a TPU: its compiler's own estimate, the cycles of all kernels at 1.5 GHz (what v5e's peak of 197
  TFLOP/s by four 128 x 128 units comes to).
- `optimal_ms`: the fractional part of its `optimal_seconds`, which are a step's without loops (each operation that it
  cannot judge counts -1); not said for the LSTM.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import measure
import numpy as np
from resnet import ResNet18

import fedsim
from fedsim.core.types import Array
from fedsim.engine import forecast, hlo, targets
from fedsim.models import CharLSTM, Cifar10CNN, FemnistCNN

FORMS = ["fedsim", "patches", "flax"]
PRECISIONS = ["float32", "bfloat16"]
CLOCK = 1.5e9  # of a TPU v5e
ROW = ("target", "network", "width", "precision")
KEYS = ("target", "network", "width", "batch_size", "precision", "layers")


class FlaxCNN(nn.Module):
    """A convolutional network of flax's own layers: (features, size, pool) a layer, then two dense ones."""

    convolutions: tuple[tuple[int, int, bool], ...]
    padding: str
    hidden: int
    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for features, size, pool in self.convolutions:
            x = nn.relu(nn.Conv(features, (size, size), padding=self.padding)(x))
            x = nn.max_pool(x, (2, 2), (2, 2)) if pool else x
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes)(x)


class FlaxLSTM(nn.Module):
    """`CharLSTM` of flax's own layers, without dropout."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Embed(80, 8)(x)
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(256))(x)
        return nn.Dense(80)(x[:, -1])


# name: (input, batch size, fedsim's module, flax's module)
NETWORKS: dict[str, tuple[np.ndarray, int, nn.Module, nn.Module]] = {
    "cifar10_cnn": (
        np.zeros((32, 32, 3), np.uint8),
        64,
        Cifar10CNN(10),
        FlaxCNN(((32, 3, True), (64, 3, True), (64, 3, False)), "VALID", 64, 10),
    ),
    "femnist_cnn": (
        np.zeros((28, 28, 1), np.uint8),
        64,
        FemnistCNN(62),
        FlaxCNN(((32, 5, True), (64, 5, True)), "SAME", 126, 62),
    ),
    "char_lstm": (np.zeros(80, np.int32), 10, CharLSTM(80, dropout_rate=0.0), FlaxLSTM()),
    "resnet18": (np.zeros((32, 32, 3), np.uint8), 32, ResNet18(), ResNet18(layers="flax")),
}


def main() -> None:
    """Parses the arguments and compiles what is not in the file of results yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", default=["v5e", "h100"], metavar="DEVICE")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--widths", nargs="+", type=int, default=[20, 128])
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS, metavar="NAME")
    parser.add_argument("--layers", nargs="+", default=FORMS, choices=FORMS, metavar="NAME")
    parser.add_argument("--out", type=Path, help="file to append the lines to; what is in it is not done again")
    parser.add_argument("--table", action="store_true", help="print the lines of --out as a table, and do no more")
    options = parser.parse_args()
    kept = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    done = [json.loads(line) for line in kept]
    if options.table:
        table(done)
        return
    targets.compile_only()
    for name in options.targets:
        device = targets.devices(targets.parse(name))[0]
        for network in options.networks:
            for width in options.widths:
                for precision in options.precisions:
                    for layers in options.layers:
                        batch_size = NETWORKS[network][1]
                        which = dict(zip(KEYS, (name, network, width, batch_size, precision, layers), strict=True))
                        if not any(all(line[key] == which[key] for key in KEYS) for line in done):
                            found = compiled(device, network, width, precision, layers, targets.CHIPS[name].backend)
                            measure.line(options.out, benchmark="targets", **which, **found)


def compiled(device: jax.Device, network: str, width: int, precision: str, layers: str, backend: str) -> dict[str, Any]:
    """What the compiler says of a step."""
    example, batch_size, own, flax = NETWORKS[network]
    form = {"fedsim": backend, "patches": "cpu", "flax": None}[layers]
    module = flax if layers == "flax" else own
    task = fedsim.classification(module, example, dtype=jnp.dtype(precision), backend=form)
    x, y = np.zeros((batch_size, *example.shape), example.dtype), np.zeros(batch_size, np.int32)
    lowered = forecast.lower_step(task, x, y, width, device)
    flops = width * forecast.step_flops(fedsim.classification(own, example, backend="cpu"), x, y)
    started = time.perf_counter()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"problem": str(error).splitlines()[0][:200]}
    taken = time.perf_counter() - started
    work = hlo.work(program.as_text() or "")
    memory = program.memory_analysis().temp_size_in_bytes / 2**20
    found: dict[str, Any] = {"compile_seconds": taken, "gigaflops": flops / 1e9, "memory_mebibytes": memory}
    if backend == "gpu":
        found |= {"gigabytes": work.bytes / 1e9, "kernels": work.kernels}
    else:
        found["cycle_ms"] = work.cycles / CLOCK * 1e3
        costs = program.cost_analysis() or {}
        if network != "char_lstm" and "optimal_seconds" in costs:
            found["optimal_ms"] = costs["optimal_seconds"] % 1 * 1e3
    return found


def table(lines: list[dict[str, Any]]) -> None:
    """Prints a Markdown table: a row for each device, network, width and precision."""
    print("| device | network | width | precision | " + " | ".join(FORMS) + " |")
    print("| :--- | :--- | ---: | :--- | " + " | ".join(["---:"] * len(FORMS)) + " |")
    rows = dict.fromkeys(tuple(line[key] for key in ROW) for line in lines)
    for row in rows:
        same = {line["layers"]: line for line in lines if row == tuple(line[key] for key in ROW)}
        print("| " + " | ".join(map(str, row)) + " | " + " | ".join(cell(same.get(form)) for form in FORMS) + " |")


def cell(line: dict[str, Any] | None) -> str:
    """For example "2.63 / 3.89 ms" on a TPU, "2.18 GB, 47 kernels" on a GPU."""
    if line is None or "problem" in line:
        return "" if line is None else "does not fit"
    if "cycle_ms" not in line:
        return f"{line['gigabytes']:.3g} GB, {line['kernels']} kernels"
    optimal = f" / {line['optimal_ms']:.3g}" if "optimal_ms" in line else ""
    return f"{line['cycle_ms']:.3g}{optimal} ms"


if __name__ == "__main__":
    main()
