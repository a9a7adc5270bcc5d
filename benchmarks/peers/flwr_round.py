"""A workload run by Flower's simulation engine: `FedAvg`, and a Ray worker for each core.

Prints one JSON line. There is a node for each member of the cohort; in each round a node acts as another client.
"""

import os
from importlib.metadata import version

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import exchange
import flwr_client
import numpy as np
import torch
import torch_models
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


def main() -> None:
    """Starts Flower's engine, whose server runs the rounds."""
    options = exchange.parser(__doc__).parse_args()
    num_nodes = exchange.load(options.folder).cohorts.shape[1]
    versions = {"flwr": version("flwr"), "ray": version("ray"), "torch": torch.__version__}
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        def prepare(work: exchange.Work) -> exchange.Train:
            model = torch_models.build(work.settings, work.params)
            initial = ArrayRecord(model.state_dict())
            strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=num_nodes, min_available_nodes=num_nodes)
            config = {"folder": str(work.folder), "fedsim-order": options.check}

            def train(rounds: int) -> dict[str, np.ndarray]:
                result = strategy.start(grid, initial, num_rounds=rounds, train_config=ConfigRecord(config))
                model.load_state_dict(result.arrays.to_torch_state_dict())
                return torch_models.read_params(model)

            return train

        exchange.run_peer("flwr", prepare, versions, options)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, flwr_client.app, num_supernodes=num_nodes, backend_config=resources)


if __name__ == "__main__":
    main()
