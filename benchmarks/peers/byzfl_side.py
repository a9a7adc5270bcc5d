"""Runs distributed SGD with ByzFL's clients and server, on commands of `byzfl_grid.py`.

The loop is that of `byzfl.benchmark.train`, without its files. The argument is a folder with `data.npz` (x, y and
client_ids of the honest clients, x_test, y_test) and, for each seed, the initial parameters `initial-SEED.npy` in the
order of the model. Reads a JSON object a line: a cell, `seed`, `steps`, `eval_every`, and `save`, a file for the last
parameters, or null. Answers each with a line of JSON: seconds of the steps and of the evaluations, and accuracies. The
data are tensors in memory, which is faster than the images that ByzFL's benchmark decodes at each step.
"""

import argparse
import copy
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import byzfl
import numpy as np
import torch
from byzfl.fed_framework import models
from byzfl.utils.misc import set_random_seed
from torch.utils.data import DataLoader, Subset, TensorDataset

TEST_BATCH = 1000


class DigitsMLP(torch.nn.Module):
    """64-32-10 for 8x8 digits, like ByzFL's `fc_mnist`."""

    def __init__(self) -> None:
        super().__init__()
        self._f1 = torch.nn.Linear(64, 32)
        self._f2 = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self._f2(torch.relu(self._f1(x))), dim=1)


class Side:
    """The data, and runs with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with np.load(folder / "data.npz") as file:
            data = dict(file)
        tensors = lambda x, y: TensorDataset(torch.from_numpy(data[x]), torch.from_numpy(data[y]).long())
        train, ids = tensors("x", "y"), data["client_ids"]
        self.clients = [Subset(train, np.flatnonzero(ids == client).tolist()) for client in np.unique(ids)]
        self.test = DataLoader(tensors("x_test", "y_test"), TEST_BATCH)
        models.digits_mlp = DigitsMLP
        self.model = "fc_mnist" if data["x"].shape[1] == 784 else "digits_mlp"

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Trains; seconds of a step and of an evaluation, the CPU time a second, and accuracies."""
        common = {
            "model_name": self.model,
            "device": "cpu",
            "learning_rate": request["learning_rate"],
            "weight_decay": 0.0,
        }
        common |= {"optimizer_name": "SGD", "milestones": [], "learning_rate_decay": 1.0}
        client_options = {
            "loss_name": "NLLLoss",
            "LabelFlipping": False,
            "nb_labels": 10,
            "momentum": request["momentum"],
        }
        client_options["store_per_client_metrics"] = False
        loaders = [DataLoader(client, batch_size=request["batch_size"], shuffle=True) for client in self.clients]
        clients = [byzfl.Client({**common, **client_options, "training_dataloader": loader}) for loader in loaders]
        pipeline = {"aggregator_info": request["aggregator"], "pre_agg_list": request["pre_aggregators"]}
        server = byzfl.Server({**common, **pipeline, "test_loader": self.test})
        knowledge = {**request["attack"]["parameters"], **pipeline, "f": request["f"]}
        byzantine = byzfl.ByzantineClient(
            copy.deepcopy({"name": request["attack"]["name"], "f": request["f"], "parameters": knowledge})
        )
        server.set_parameters(torch.from_numpy(np.load(self.folder / f"initial-{request['seed']}.npy")))
        set_random_seed(request["seed"])

        accuracies, evaluating, started, cpu = [], 0.0, time.perf_counter(), time.process_time()
        for client in clients:
            client.set_model_state(server.get_dict_parameters())
        for step in range(request["steps"] + 1):
            if step % request["eval_every"] == 0 or step == request["steps"]:
                evaluation_started = time.perf_counter()
                accuracies.append(server.compute_test_accuracy())
                evaluating += time.perf_counter() - evaluation_started
            if step == request["steps"]:
                break
            for client in clients:
                client.compute_gradients()
            honest = [client.get_flat_gradients_with_momentum() for client in clients]
            server.update_model_with_gradients(honest + byzantine.apply_attack(honest))
            for client in clients:
                client.set_model_state(server.get_dict_parameters())
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        if request["save"]:
            np.save(request["save"], server.get_flat_parameters().detach().numpy())
        return {
            "seconds_a_step": (seconds - evaluating) / request["steps"],
            "seconds_an_evaluation": evaluating / len(accuracies),
            "core_share": cpu / seconds,
            "accuracies": accuracies,
        }


def main() -> None:
    """Answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    side = Side(options.folder)
    print(json.dumps({name: version(name) for name in ("byzfl", "torch")}), flush=True)
    for line in sys.stdin:
        print(json.dumps(side.run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
