# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---

# %% [markdown]
# # Weights over lambda, as one program
#
# Ten clients share scikit-learn's digits; three of them have their labels shuffled. ARFL trains for 30 rounds with 13
# values of lambda, all in one `vmap`. For small lambda one client has all the weight; in between the corrupted clients
# have none; for large lambda everybody counts by their number of examples, as in FedAvg.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fedsim
from fedsim import build
from fedsim.config import DataConfig
from fedsim.models import MLP

dataset = build.dataset(DataConfig(num_clients=10, partition="dirichlet"))
key = jax.random.key(0)
clients = fedsim.corrupt(fedsim.corruption.shuffling, key, dataset.train, 3, client_ids=(7, 8, 9))

# %%
simulation = fedsim.Simulation(
    task=fedsim.classification(MLP(10, (32,)), dataset.train.x[0]),
    aggregator=lambda hparams: fedsim.aggregators.arfl(hparams.lam),
    cohort_size=10,
    batch_size=10,
    max_count=dataset.max_count,
)


@jax.jit
def train(clients, lam):
    """Final test accuracy and weights alpha [10] for one lambda."""
    hparams = fedsim.HParams(learning_rate=0.1, lam=lam)
    state, _ = simulation.run(simulation.init(key, clients, hparams), clients, hparams, max_rounds=30)
    metrics = fedsim.evaluate(simulation.task, state.params, dataset.x_test, dataset.y_test)
    return metrics.num_correct / metrics.num_examples, simulation.client_weights(state, hparams)


lams = jnp.logspace(-2, 3, 13)
accuracy, alpha = jax.vmap(train, in_axes=(None, 0))(clients, lams)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for i in range(10):
    bad = bool(clients.corrupted[i])
    left.plot(lams, 100 * alpha[:, i], "--" if bad else "-", color="#D55E00" if bad else "#0072B2")
left.set(xscale="log", xlabel="λ / M", ylabel="Client's weight α (%)", title="corrupted clients dashed")
right.plot(lams, 100 * np.asarray(accuracy), "o-", color="#0072B2")
right.set(xscale="log", xlabel="λ / M", ylabel="Test accuracy (%)", title="30 rounds, one seed")

# %%
num_weights = (alpha > 1e-6).sum(axis=1)
on_corrupted = jnp.where(clients.corrupted[None], alpha, 0).sum(axis=1)
for row in zip(lams, num_weights, on_corrupted, accuracy, strict=True):
    print("lambda = {:8.3f} M: {:2d} clients with weight, {:5.1%} on corrupted ones, accuracy {:.1%}".format(*row))
