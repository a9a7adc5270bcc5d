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
# This notebook states ARFL's problem, solves it in a few lines, and trains ten clients, three of them with shuffled
# labels.
#
# Federated learning averages the models of its clients. If some clients' labels are wrong, the average learns the
# errors too. *Auto-weighted Robust Federated Learning* (ARFL; Li, Ngai, Ye, Voigt, <https://arxiv.org/abs/2101.05880>)
# learns the clients' weights together with the model. The only additional number that the server needs from each client
# is its training loss.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import fedsim

BLUE, ORANGE = "#0072B2", "#D55E00"  # benign, corrupted

# %% [markdown]
# ## The objective
#
# Client $i$ has $m_i$ examples and the mean training loss $L_i(w)$; there are $M = \sum_i m_i$ examples. ARFL minimizes
# over parameters $w$ and weights $\alpha$ jointly (Eq. 6 of the paper):
#
# $$\min_{w,\,\alpha}\; \sum_i \alpha_i L_i(w) + \frac{\lambda}{2} \sum_i \frac{\alpha_i^2}{m_i}
# \qquad \alpha_i \ge 0, \quad \sum_i \alpha_i = 1$$
#
# The first term is smallest with all weight on the client with the lowest loss. The second one is smallest for
# $\alpha_i = m_i / M$, which is FedAvg. $\lambda$ sets the balance; here, as in the key `arfl.lam`, `lam` is
# $\lambda / M$.
#
# Ten clients as an example: the last three have high losses, like clients with wrong labels once the model has learned
# something from the rest.

# %%
num_examples = np.array([120, 80, 100, 60, 140, 90, 110, 70, 100, 130])
losses = np.array([0.31, 0.42, 0.27, 0.55, 0.38, 0.47, 0.35, 1.60, 1.90, 1.75])
corrupted = np.arange(10) >= 7


def objective(alpha, lam):
    """Eq. 6 at fixed parameters, for weights alpha [N]."""
    return alpha @ losses + lam * num_examples.sum() / 2 * np.sum(alpha**2 / num_examples)


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
# In words: the best $p$ clients have the average loss $\bar L_p$. Clients whose loss exceeds it by $\lambda / M_p$ or
# more get no weight; the weight of the rest is proportional to their examples times their distance below this
# threshold.


# %%
def best_weights(lam):
    """The weights alpha [N], p, the p-average loss and the threshold (Theorem 2)."""
    scaled = lam * num_examples.sum()
    order = np.argsort(losses)
    totals = np.cumsum(num_examples[order])
    averages = np.cumsum((num_examples * losses)[order]) / totals
    p = np.sum(1 + totals * (averages - losses[order]) / scaled > 0)
    average, threshold = averages[p - 1], averages[p - 1] + scaled / totals[p - 1]
    return num_examples * np.maximum(threshold - losses, 0) / scaled, p, average, threshold


# %% [markdown]
# Is this the minimum? A general solver for constrained problems finds the same weights without the theorem. So does
# fedsim's rule, whose initial state contains all clients' losses.

# %%
differences = []
for lam in (0.01, 0.1, 0.3, 1.0, 10.0):
    alpha = best_weights(lam)[0]
    solution = minimize(
        objective,
        x0=num_examples / num_examples.sum(),
        args=(lam,),
        bounds=[(0, 1)] * 10,
        constraints={"type": "eq", "fun": lambda alpha: alpha.sum() - 1},
        tol=1e-12,
    )
    rule = fedsim.aggregators.arfl(lam=lam)
    in_fedsim = rule.client_weights(rule.init((), num_examples, losses))
    differences.append((np.abs(alpha - solution.x).max(), np.abs(alpha - in_fedsim).max()))
    print("lambda = {:5.2f} M: solver differs by {:.0e}, fedsim by {:.0e}".format(lam, *differences[-1]))

# %% [markdown]
# ## The p-average loss and the threshold
#
# Left: each client's loss, the average of the best $p$, and the threshold $\lambda / M_p$ above it. Right: the
# resulting weights. Clients above the threshold have exactly zero weight; among the rest, those with lower losses have
# more weight than with FedAvg.

# %%
lam = 0.4
alpha, p, average, threshold = best_weights(lam)
colors = [ORANGE if bad else BLUE for bad in corrupted]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.bar(range(10), losses, color=colors, width=0.6)
left.axhline(average, color="black", linewidth=1, label=f"average of the best p = {p}")
left.axhline(threshold, color="black", linewidth=1, linestyle="--", label="threshold")
left.legend(frameon=False, loc="upper left")
left.set(xlabel="Client", ylabel="Training loss", xticks=range(10), title=f"λ = {lam:g} M")
right.bar(range(10), 100 * alpha, color=colors, width=0.6, label="ARFL")
right.plot(range(10), 100 * num_examples / num_examples.sum(), "_", color="black", markersize=16, label="FedAvg")
right.legend(frameon=False, loc="upper right")
right.set(xlabel="Client", ylabel="Client's weight α (%)", xticks=range(10), title="corrupted clients orange")
plt.show()

# %% [markdown]
# ## From one client to all
#
# A small $\lambda$ gives all weight to one client. As $\lambda$ grows, clients are added in the order of their losses;
# in a wide range all benign clients have positive weight and all corrupted ones zero. A large $\lambda$ gives every
# client $m_i / M$ (the marks at the right edge).

# %%
toy_lams = np.logspace(-3, 2, 200)
toy_alpha = np.stack([best_weights(lam)[0] for lam in toy_lams])
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for i in range(10):
    axes.plot(toy_lams, 100 * toy_alpha[:, i], "--" if corrupted[i] else "-", color=colors[i])
    axes.plot(toy_lams[-1], 100 * num_examples[i] / num_examples.sum(), ".", color="black", clip_on=False)
apart = (toy_alpha[:, ~corrupted] > 0).all(axis=1) & (toy_alpha[:, corrupted] == 0).all(axis=1)
axes.axvspan(toy_lams[apart].min(), toy_lams[apart].max(), color="black", alpha=0.07, linewidth=0)
axes.set(xscale="log", xlabel="λ / M", ylabel="Client's weight α (%)", xlim=(toy_lams[0], toy_lams[-1]), ylim=(0, None))
axes.set_title("corrupted clients dashed; shaded: all benign clients and no corrupted one", fontsize="medium")
plt.show()

# %% [markdown]
# ## Training
#
# The server cannot solve for $w$ in closed form, so it alternates. In each round the clients report their loss at the
# model they receive and train it on their own data; the server averages the results with the weights $\alpha$, then
# computes new weights from the new losses.
#
# Ten clients share scikit-learn's handwritten digits unevenly; clients 7, 8 and 9 have shuffled labels. Other keys have
# their defaults. The keywords sweep over two rules and eleven values of $\lambda$. FedAvg has no $\lambda$, so it runs
# once.

# %%
configuration = {
    "name": "ten-clients",
    "data": {"name": "digits", "num_clients": 10, "partition": "dirichlet"},
    "corruption": {"kind": "shuffling", "clients": [7, 8, 9]},
    "model": {"name": "mlp"},
    "mlp": {"hidden_sizes": [32]},
    "client": {"learning_rate": 0.1, "epochs": 5, "batch_size": 10},
    "server": {"cohort_size": 10, "num_rounds": 30, "eval_every": 1},
}
lams = np.logspace(-2, 3, 11)

# %%
rules = fedsim.sweep(["fedavg", "arfl"])
experiment = fedsim.load(configuration, server__aggregator=rules, arfl__lam=fedsim.sweep(lams))
result = fedsim.run(experiment, progress=False)

# %% [markdown]
# The results are in a folder in `runs`; running the same lines again only reads them. `result.rounds` has a row for
# each run and evaluated round, `result.clients` one for each run, round and client. First $\lambda = M$.

# %%
rounds = result.rounds.to_pandas()
weights = result.clients.to_pandas().pivot(index=["run", "round"], columns="client_id", values="weight")
accuracy = rounds.pivot(index="run", columns="round", values="test_accuracy")
runs = {"FedAvg": 0, "ARFL": 1 + int(np.argmin(np.abs(lams - 1)))}  # in the order of the sweep
rounds[rounds["run"].isin(runs.values()) & (rounds["round"] == 30)]

# %% [markdown]
# FedAvg weights the three corrupted clients by their examples in all rounds. ARFL starts with nearly the same weights,
# since an untrained model has similar losses on all clients. As the model learns, the losses separate, and the weights
# of the corrupted clients drop to exactly zero.

# %%
figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
for panel, (name, run) in zip(panels, runs.items(), strict=False):
    for i in range(10):
        panel.plot(100 * weights.loc[run][i], "--" if i >= 7 else "-", color=ORANGE if i >= 7 else BLUE)
    panel.set(xlabel="Round", ylabel="Client's weight (%)", title=f"{name} (corrupted clients dashed)", ylim=(0, 28))
for name, color in (("FedAvg", "#999999"), ("ARFL", "black")):
    panels[2].plot(100 * accuracy.loc[runs[name]], color=color, label=name)
panels[2].legend(frameon=False, loc="lower right")
panels[2].set(xlabel="Round", ylabel="Test accuracy (%)", title="clean test set")
plt.show()

# %%
last_weights = weights.xs(30, level="round")  # a row for each run
on_corrupted = last_weights[[7, 8, 9]].sum(axis=1)
for name, run in runs.items():
    print(f"{name}: accuracy {accuracy.loc[run, 30]:.1%}, weight on corrupted clients {on_corrupted[run]:.1%}")

# %% [markdown]
# ## Which λ?
#
# After training, the weights follow the same pattern: a single client, then only benign clients, then all. Accuracy is
# best in the middle. The paper uses $\lambda = M$ for corrupted data.

# %%
num_weights = (last_weights > 1e-6).sum(axis=1)
for run, lam in enumerate(lams, start=1):
    row = lam, num_weights[run], on_corrupted[run], accuracy.loc[run, 30]
    print("lambda = {:8.3f} M: {:2d} clients with weight, {:5.1%} on corrupted ones, accuracy {:.1%}".format(*row))

# %% [markdown]
# `result.figures()` are the figures of `fedsim report` by name.

# %%
figures = result.figures()
print(*figures, sep=", ")
figures["weights_over_lam"]

# %% [markdown]
# Next: `sweep` varies λ, the share of corrupted clients and the seed together; `robustness` compares rules under
# attacks; `adapters` fine-tunes a frozen model.
