"""A workload run by PyTorch with the clients of a cohort side by side: `torch.func` `vmap` of `grad`.

Prints one JSON line. All clients have to be of one size.
"""

import exchange
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
import torch_models
from torch import Tensor
from torch.func import functional_call, grad, vmap


def prepare(work: exchange.Work) -> exchange.Train:
    """A function that trains a number of rounds from the initial parameters."""
    batch_size, learning_rate = work.settings["batch_size"], work.settings["learning_rate"]
    count = int(work.counts[0])
    if np.any(work.counts != count):
        raise ValueError("vmap needs clients of one size")
    model = torch_models.build(work.settings, work.params)
    x, y = torch.from_numpy(work.x), torch.from_numpy(work.y).long()

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    step = vmap(grad(loss))

    def train(rounds: int) -> dict[str, np.ndarray]:
        torch_models.load_params(model, work.params)
        server = {name: p.detach().clone() for name, p in model.named_parameters()}
        for r in range(rounds):
            cohort = work.cohort(r)
            stacked = {name: p.expand(len(cohort), *p.shape).clone() for name, p in server.items()}
            first = torch.from_numpy(work.offsets[cohort]).long()[:, None]
            for start in range(0, count, batch_size):
                index = first + torch.arange(start, min(start + batch_size, count))
                grads = step(stacked, torch_models.to_input(x[index]), y[index])
                for name, value in stacked.items():
                    value.add_(grads[name], alpha=-learning_rate)
            server = {name: value.mean(0) for name, value in stacked.items()}
        return torch_models.to_flax(server)

    return train


if __name__ == "__main__":
    exchange.run_peer("torch_vmap", prepare, {"torch": torch.__version__}, exchange.parser(__doc__).parse_args())
