"""A workload run by pfl-research: `SimulatedBackend` and `FederatedAveraging` on its PyTorch model, in one process.

Prints one JSON line. pfl evaluates each client in the first iteration of a run; the evaluation here only counts
examples.
"""

import itertools
from importlib.metadata import version

import exchange
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
import torch_models
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn


class Classifier(nn.Module):
    """`model` with the two methods that pfl requires."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(torch_models.to_input(x)), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"examples": Weighted(len(y), 1)}


def prepare(work: exchange.Work) -> exchange.Train:
    """A function that trains a number of rounds from the initial parameters."""
    model = torch_models.build(work.settings, work.params)
    trained = [p for p in model.parameters() if p.requires_grad]
    pfl_model = PyTorchModel(Classifier(model), torch.optim.SGD, torch.optim.SGD(trained, lr=1.0))
    x, y = torch.from_numpy(work.x), torch.from_numpy(work.y).long()
    slices = {client: work.examples(client) for client in np.unique(work.cohorts).tolist()}
    datasets = {client: Dataset((x[s], y[s]), user_id=str(client)) for client, s in slices.items()}
    train_params = NNTrainHyperParams(
        local_batch_size=work.settings["batch_size"],
        local_num_epochs=1,
        local_learning_rate=work.settings["learning_rate"],
    )

    def train(rounds: int) -> dict[str, np.ndarray]:
        torch_models.load_params(model, work.params)
        clients = itertools.chain.from_iterable(work.cohort(r) for r in range(rounds))
        data = FederatedDataset(datasets.__getitem__, lambda: next(clients))
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=rounds,
                evaluation_frequency=rounds,
                train_cohort_size=len(work.cohort(0)),
                val_cohort_size=None,
            ),
            backend=SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
            model=pfl_model,
            model_train_params=train_params,
            send_metrics_to_platform=False,
        )
        return torch_models.read_params(model)

    return train


if __name__ == "__main__":
    versions = {"pfl": version("pfl"), "torch": torch.__version__}
    exchange.run_peer("pfl", prepare, versions, exchange.parser(__doc__).parse_args())
