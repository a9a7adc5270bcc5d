"""A workload run by PyTorch with the clients of a cohort in lockstep: `torch.func` `vmap` of `grad`.

Prints one JSON line. All clients must have the same number of examples.
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
    num_examples = int(work.num_examples[0])
    if np.any(work.num_examples != num_examples):
        raise ValueError("num_examples: must be equal for all clients")
    model = torch_models.build(work.settings, work.params)
    x, y = torch_models.load_examples(work)

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    step = vmap(grad(loss))

    def train(rounds: int) -> dict[str, np.ndarray]:
        torch_models.load_params(model, work.params)
        server = {name: p.detach().clone() for name, p in model.named_parameters()}
        for r in range(rounds):
            cohort = work.cohort(r)
            stacked = {name: p.expand(len(cohort), *p.shape).clone() for name, p in server.items()}
            first = torch.from_numpy(work.offsets[cohort]).long().to(torch_models.DEVICE)[:, None]
            for start in range(0, num_examples, batch_size):
                index = first + torch.arange(start, min(start + batch_size, num_examples), device=torch_models.DEVICE)
                grads = step(stacked, torch_models.to_input(x[index]), y[index])
                for name, value in stacked.items():
                    value.add_(grads[name], alpha=-learning_rate)
            server = {name: value.mean(0) for name, value in stacked.items()}
        return torch_models.to_flax(server)

    return train


if __name__ == "__main__":
    options = exchange.parser(__doc__).parse_args()
    torch_models.set_precision(exact=options.check)
    exchange.run_peer("torch_vmap", prepare, {"torch": torch.__version__}, options)
