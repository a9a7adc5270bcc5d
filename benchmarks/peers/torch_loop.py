"""A workload run by a hand-written PyTorch loop: one model, clients one after another.

Prints one JSON line. Convolutions are channels-last; SGD and averaging update all parameters in one call.
"""

import exchange
import numpy as np
import torch
import torch_models


def prepare(work: exchange.Work) -> exchange.Train:
    """A function that trains a number of rounds from the initial parameters."""
    model = torch_models.build(work.settings, work.params)
    local = [p for p in model.parameters() if p.requires_grad]
    x, y = torch_models.load_examples(work)

    def train(rounds: int) -> dict[str, np.ndarray]:
        torch_models.load_params(model, work.params)
        server = [p.detach().clone() for p in local]
        for r in range(rounds):
            cohort = work.cohort(r)
            total = int(work.num_examples[cohort].sum())
            sums = [torch.zeros_like(p) for p in server]
            for client in cohort:
                with torch.no_grad():
                    torch._foreach_copy_(local, server)
                torch_models.train_client(model, x, y, work.examples(client), work.settings)
                with torch.no_grad():
                    torch._foreach_add_(sums, local, alpha=int(work.num_examples[client]) / total)
            server = sums
        with torch.no_grad():
            torch._foreach_copy_(local, server)
        return torch_models.read_params(model)

    return train


if __name__ == "__main__":
    options = exchange.parser(__doc__).parse_args()
    torch_models.set_precision(exact=options.check)
    exchange.run_peer("torch_loop", prepare, {"torch": torch.__version__}, options)
