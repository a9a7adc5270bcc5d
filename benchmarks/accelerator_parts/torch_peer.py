"""A workload in PyTorch on a GPU: a loop over clients, or `torch.func.vmap` over the clients of a cohort.

Checks one round at full float32 in fedsim's order of examples, then times rounds, and prints one JSON line. The
precisions are those of part b: "float32" with the products that JAX uses by default (TF32), "bfloat16" by autocast.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import functional_call, grad, vmap

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
import exchange
import torch_models

Params = dict[str, np.ndarray]
Train = Callable[[int], Params]
AT_LEAST = 1.0  # seconds of a call


def main() -> None:
    """Parses the arguments, checks and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--way", choices=list(WAYS), required=True)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--any-device", action="store_true", help="run without a GPU, too")
    options = parser.parse_args()
    if not torch.cuda.is_available() and not options.any_device:
        print(json.dumps({"skipped": "PyTorch sees no GPU"}))
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    _products("highest")
    work = exchange.load(options.folder, in_fedsims_order=True)
    after = WAYS[options.way](work, device, nullcontext())(1)
    np.save(exchange.params_file(options.folder, "torch"), exchange.flatten(after, work.settings["leaves"]))

    _products("high")
    torch.backends.cudnn.benchmark = True
    work = exchange.load(options.folder)
    context = torch.autocast(device.type, torch.bfloat16) if options.precision == "bfloat16" else nullcontext()
    train = WAYS[options.way](work, device, context)
    started = time.perf_counter()
    train(1)
    first = time.perf_counter() - started
    single = exchange.timed(lambda: train(1), 1, 1)[0]
    rounds = max(1, min(len(work.cohorts), round(AT_LEAST / single)))
    seconds = exchange.timed(lambda: train(rounds), rounds, options.calls)
    line = {
        "torch": torch.__version__,
        "first_round_seconds": first,
        "rounds_a_call": rounds,
        "seconds_a_round": seconds,
        "examples_a_round": sum(int(work.counts[work.cohort(r)].sum()) for r in range(rounds)) / rounds,
    }
    print(json.dumps(line))


def _products(precision: str) -> None:
    """Products of float32 matrices: "highest" float32, "high" TF32."""
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"


def _on(work: exchange.Work, device: torch.device) -> tuple[torch.nn.Module, Tensor, Tensor]:
    with device:
        model = torch_models.build(work.settings, work.params)
    return model, torch.from_numpy(work.x).to(device), torch.from_numpy(work.y).long().to(device)


def _read(params: dict[str, Tensor]) -> Params:
    """On the host, so that everything before has been computed."""
    return torch_models.to_flax({name: p.detach().cpu() for name, p in params.items() if p.requires_grad})


def loop(work: exchange.Work, device: torch.device, context: AbstractContextManager) -> Train:
    """One model, clients one after another, as in `benchmarks/peers/torch_loop.py`."""
    model, x, y = _on(work, device)
    local = [p for p in model.parameters() if p.requires_grad]

    def train(rounds: int) -> Params:
        torch_models.load_params(model, work.params)
        server = [p.detach().clone() for p in local]
        for r in range(rounds):
            cohort = work.cohort(r)
            total = int(work.counts[cohort].sum())
            sums = [torch.zeros_like(p) for p in server]
            for client in cohort:
                with torch.no_grad():
                    torch._foreach_copy_(local, server)
                with context:
                    torch_models.train_client(model, x, y, work.examples(client), work.settings)
                with torch.no_grad():
                    torch._foreach_add_(sums, local, alpha=int(work.counts[client]) / total)
            server = sums
        with torch.no_grad():
            torch._foreach_copy_(local, server)
        return _read(dict(model.named_parameters()))

    return train


def lockstep(work: exchange.Work, device: torch.device, context: AbstractContextManager) -> Train:
    """The clients of a cohort side by side, as in `benchmarks/peers/torch_vmap.py`; all of one size."""
    batch_size, learning_rate = work.settings["batch_size"], work.settings["learning_rate"]
    count = int(work.counts[0])
    if np.any(work.counts != count):
        raise ValueError("vmap needs clients of one size")
    model, x, y = _on(work, device)

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    step = vmap(grad(loss))

    def train(rounds: int) -> Params:
        torch_models.load_params(model, work.params)
        server = {name: p.detach().clone() for name, p in model.named_parameters()}
        for r in range(rounds):
            cohort = work.cohort(r)
            stacked = {name: p.expand(len(cohort), *p.shape).clone() for name, p in server.items()}
            first = torch.from_numpy(work.offsets[cohort]).long().to(device)[:, None]
            for start in range(0, count, batch_size):
                index = first + torch.arange(start, min(start + batch_size, count), device=device)
                with context:
                    grads = step(stacked, torch_models.to_input(x[index]), y[index])
                for name, value in stacked.items():
                    value.add_(grads[name], alpha=-learning_rate)
            server = {name: value.mean(0) for name, value in stacked.items()}
        return _read({name: value.requires_grad_() for name, value in server.items()})

    return train


WAYS: dict[str, Callable[[exchange.Work, torch.device, AbstractContextManager], Train]] = {
    "loop": loop,
    "vmap": lockstep,
}

if __name__ == "__main__":
    main()
