# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: -jupytext.text_representation
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # ARFL in ten minutes
#
# Federated learning averages what its clients learn. Where some clients' labels are wrong, the average learns the
# errors with the rest. *Auto-weighted Robust Federated Learning* (ARFL; Li, Ngai, Ye, Voigt,
# <https://arxiv.org/abs/2101.05880>) learns how much each client counts together with the model. All that the server
# needs for it is one more number from each client: its training loss.
#
# This notebook states the problem, solves it in a few lines, and trains ten clients, three of them with shuffled
# labels.

# %%
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import fedsim
from fedsim.aggregators.arfl import optimal_weights
from fedsim.config.schema import DataConfig
from fedsim.engine import build
from fedsim.models import MLP

BLUE, ORANGE = "#0072B2", "#D55E00"  # benign, corrupted

# %% [markdown]
# ## The objective
#
# Client $i$ has $m_i$ examples and the mean training loss $L_i(w)$; there are $M = \sum_i m_i$ examples. ARFL looks for
# parameters $w$ and weights $\alpha$ at once (Eq. 6 of the paper):
#
# $$\min_{w,\,\alpha}\; \sum_i \alpha_i L_i(w) + \frac{\lambda}{2} \sum_i \frac{\alpha_i^2}{m_i}
# \qquad \alpha_i \ge 0, \quad \sum_i \alpha_i = 1$$
#
# The first term wants all weight on the client with the lowest loss. The second one is least for $\alpha_i = m_i / M$,
# which is FedAvg. $\lambda$ sets the balance; here, as everywhere in fedsim, `lam` is $\lambda / M$.
#
# Ten clients to try it on: the last three have high losses, as clients with wrong labels do once the model has learnt
# something from the others.

# %%
counts = np.array([120, 80, 100, 60, 140, 90, 110, 70, 100, 130])
losses = np.array([0.31, 0.42, 0.27, 0.55, 0.38, 0.47, 0.35, 1.60, 1.90, 1.75])
corrupted = np.arange(10) >= 7


def objective(alpha, lam):
    """Eq. 6 at fixed parameters, for weights alpha [N]."""
    return alpha @ losses + lam * counts.sum() / 2 * np.sum(alpha**2 / counts)


# %% [markdown]
# ## The best weights, in closed form
#
# For fixed parameters the best weights have a formula (Theorem 2). Sort the clients by loss, and let $M_k$ be the
# number of examples and $\bar L_k$ the average loss of the first $k$. Then $p$ is the largest $k$ with
# $1 + M_k (\bar L_k - L_k) / \lambda > 0$, and
#
# $$\alpha_i = \frac{m_i}{M_p} \Big[ 1 + \frac{M_p (\bar L_p - L_i)}{\lambda} \Big]_+
# = \frac{m_i}{\lambda} \Big[ \bar L_p + \frac{\lambda}{M_p} - L_i \Big]_+$$
#
# In words: the best $p$ clients have the average loss $\bar L_p$. Whoever is worse than that by $\lambda / M_p$ or more
# gets nothing; the others count by their examples, times how far they are below this threshold.


# %%
def best_weights(lam):
    """The weights alpha [N], p, the p-average loss and the threshold (Theorem 2)."""
    scaled = lam * counts.sum()
    order = np.argsort(losses)
    num_examples = np.cumsum(counts[order])
    averages = np.cumsum((counts * losses)[order]) / num_examples
    p = np.sum(1 + num_examples * (averages - losses[order]) / scaled > 0)
    average, threshold = averages[p - 1], averages[p - 1] + scaled / num_examples[p - 1]
    return counts * np.maximum(threshold - losses, 0) / scaled, p, average, threshold


# %% [markdown]
# Is that the minimum? A general solver for constrained problems, which knows nothing of the theorem, finds the same
# weights, and so does the function that fedsim's aggregator calls (it does the same sums, ordered so that nothing
# cancels in float32).

# %%
differences = []
for lam in (0.01, 0.1, 0.3, 1.0, 10.0):
    alpha = best_weights(lam)[0]
    found = minimize(
        objective,
        x0=counts / counts.sum(),
        args=(lam,),
        bounds=[(0, 1)] * 10,
        constraints={"type": "eq", "fun": lambda alpha: alpha.sum() - 1},
        tol=1e-12,
    )
    in_fedsim = optimal_weights(jnp.asarray(losses), jnp.asarray(counts), lam)[0]
    differences.append((np.abs(alpha - found.x).max(), np.abs(alpha - in_fedsim).max()))
    print("lambda = {:5.2f} M: solver differs by {:.0e}, fedsim by {:.0e}".format(lam, *differences[-1]))

# %% [markdown]
# ## The p-average loss and the threshold
#
# Left: each client's loss, the average of the best $p$, and the threshold $\lambda / M_p$ above it. Right: the weights
# that follow. Clients above the threshold have none at all, not just little; of the others, the better ones have more
# than FedAvg would give them.

# %%
lam = 0.4
alpha, p, average, threshold = best_weights(lam)
colours = [ORANGE if bad else BLUE for bad in corrupted]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.bar(range(10), losses, color=colours, width=0.6)
left.axhline(average, color="black", linewidth=1, label=f"average of the best p = {p}")
left.axhline(threshold, color="black", linewidth=1, linestyle="--", label="threshold")
left.legend(frameon=False, loc="upper left")
left.set(xlabel="Client", ylabel="Training loss", xticks=range(10), title=f"λ = {lam:g} M")
right.bar(range(10), 100 * alpha, color=colours, width=0.6, label="ARFL")
right.plot(range(10), 100 * counts / counts.sum(), "_", color="black", markersize=16, label="FedAvg")
right.legend(frameon=False, loc="upper right")
right.set(xlabel="Client", ylabel="Client's weight α (%)", xticks=range(10), title="corrupted clients orange")
plt.show()

# %% [markdown]
# ## From one client to all
#
# A small $\lambda$ trusts one client. As it grows, more join in the order of their losses; there is a wide range in
# which all benign clients have a weight and the corrupted ones exactly zero. A large $\lambda$ gives everybody
# $m_i / M$ (the marks at the right edge).

# %%
toy_lams = np.logspace(-3, 2, 200)
toy_alpha = np.stack([best_weights(lam)[0] for lam in toy_lams])
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for i in range(10):
    axes.plot(toy_lams, 100 * toy_alpha[:, i], "--" if corrupted[i] else "-", color=colours[i])
    axes.plot(toy_lams[-1], 100 * counts[i] / counts.sum(), ".", color="black", clip_on=False)
apart = (toy_alpha[:, ~corrupted] > 0).all(axis=1) & (toy_alpha[:, corrupted] == 0).all(axis=1)
axes.axvspan(toy_lams[apart].min(), toy_lams[apart].max(), color="black", alpha=0.07, linewidth=0)
axes.set(xscale="log", xlabel="λ / M", ylabel="Client's weight α (%)", xlim=(toy_lams[0], toy_lams[-1]), ylim=(0, None))
axes.set_title("corrupted clients dashed; shaded: all benign clients and no other", fontsize="medium")
plt.show()

# %% [markdown]
# ## Training
#
# The server can't solve for $w$ in closed form, so it takes turns. In each round the clients report their loss at the
# model they receive and train it on their own data; the server averages the results with the weights $\alpha$, then
# computes new weights from the new losses.
#
# Ten clients share scikit-learn's handwritten digits unevenly; clients 7, 8 and 9 have their labels shuffled.

# %%
dataset = build.dataset(DataConfig(name="digits", num_clients=10, partition="dirichlet"))
key = jax.random.key(0)
clients = fedsim.corrupt(fedsim.corruption.shuffling, key, dataset.train, 3, client_ids=(7, 8, 9))

arfl = fedsim.Simulation(
    task=fedsim.classification(MLP(10, (32,)), dataset.train.x[0]),
    aggregator=lambda hparams: fedsim.aggregators.arfl(hparams.lam),
    cohort_size=10,
    batch_size=10,
    epochs=5,
    max_count=dataset.max_count,
)
fedavg = replace(arfl, aggregator=lambda hparams: fedsim.aggregators.fedavg())

# %% [markdown]
# A round is a pure function of the state and the data, so that a whole run is one `scan`, compiled once. After each
# round it keeps the test accuracy and the weight that every client had.


# %%
def train(simulation, lam):
    """Test accuracy [R] and the clients' weights [R, N] over 30 rounds."""
    hparams = fedsim.HParams(learning_rate=0.1, lam=lam)

    def step(state, _):
        state, record = simulation.round(state, clients, hparams)
        metrics = fedsim.evaluate(simulation.task, state.params, dataset.x_test, dataset.y_test)
        weights = jnp.zeros(10).at[record.client_ids].set(record.weights)
        return state, (metrics.num_correct / metrics.num_examples, weights)

    return jax.lax.scan(step, simulation.init(key, clients, hparams), length=30)[1]


fedavg_accuracy, fedavg_weights = jax.jit(partial(train, fedavg))(1.0)

# %% [markdown]
# `lam` is data of the compiled program, so that `vmap` trains with 11 values at once. Look at $\lambda = M$ first.

# %%
lams = jnp.logspace(-2, 3, 11)
arfl_accuracy, arfl_weights = jax.jit(jax.vmap(partial(train, arfl)))(lams)
at_one = int(jnp.argmin(jnp.abs(lams - 1)))
results = {"FedAvg": (fedavg_accuracy, fedavg_weights), "ARFL": (arfl_accuracy[at_one], arfl_weights[at_one])}

# %% [markdown]
# FedAvg gives the three corrupted clients their share of the examples, to the end. ARFL begins with nearly the same
# weights, since an untrained model is as bad for everybody. As the model learns, the losses come apart, and the
# corrupted clients' weights fall to exactly zero.

# %%
figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
rounds = np.arange(1, 31)
for panel, (name, (_, weights)) in zip(panels, results.items(), strict=False):
    for i in range(10):
        panel.plot(rounds, 100 * weights[:, i], "--" if i >= 7 else "-", color=ORANGE if i >= 7 else BLUE)
    panel.set(xlabel="Round", ylabel="Client's weight (%)", title=f"{name} (corrupted clients dashed)", ylim=(0, 28))
for name, colour in (("FedAvg", "#999999"), ("ARFL", "black")):
    panels[2].plot(rounds, 100 * results[name][0], color=colour, label=name)
panels[2].legend(frameon=False, loc="lower right")
panels[2].set(xlabel="Round", ylabel="Test accuracy (%)", title="clean test set")
plt.show()

# %%
final_accuracy = {name: float(accuracy[-1]) for name, (accuracy, _) in results.items()}
final_on_corrupted = {name: float(weights[-1, 7:].sum()) for name, (_, weights) in results.items()}
for name in results:
    print(f"{name}: accuracy {final_accuracy[name]:.1%}, weight on corrupted clients {final_on_corrupted[name]:.1%}")

# %% [markdown]
# ## Which λ?
#
# After training the picture is the one from above: a single client, then benign clients only, then everybody. Accuracy
# is best in the middle. The paper uses $\lambda = M$ for corrupted data.

# %%
accuracy, alpha = arfl_accuracy[:, -1], arfl_weights[:, -1]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for i in range(10):
    left.plot(lams, 100 * alpha[:, i], "--" if i >= 7 else "-", color=ORANGE if i >= 7 else BLUE)
left.set(xscale="log", xlabel="λ / M", ylabel="Client's weight (%)", title="corrupted clients dashed", ylim=(0, None))
right.plot(lams, 100 * accuracy, "o-", color="black")
right.set(xscale="log", xlabel="λ / M", ylabel="Test accuracy (%)", title="after 30 rounds, one seed")
plt.show()

# %%
num_weights = (alpha > 1e-6).sum(axis=1)
on_corrupted = alpha[:, 7:].sum(axis=1)
for row in zip(lams, num_weights, on_corrupted, accuracy, strict=True):
    print("lambda = {:8.3f} M: {:2d} clients with weight, {:5.1%} on corrupted ones, accuracy {:.1%}".format(*row))

# %% [markdown]
# From here: `sweep` maps λ, the share of corrupted clients and seeds together; `own_aggregator` writes a rule and
# compares it with this one.
