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
# # Your own aggregator
#
# An aggregator is three pure functions over what a server can see. This notebook writes two rules, puts them through
# the contract that all rules obey, gives them names, and compares them with the built-in ones in a table like the
# paper's Table 2.

# %%
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
import rich

import fedsim
from fedsim import report
from fedsim.config import toml as configfile
from fedsim.datasets import prepared
from fedsim.engine import experiment
from fedsim.engine.plan import make_plan
from fedsim.testing import check_aggregator

COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7")

# %% [markdown]
# ## A rule that chooses weights
#
# The server sees a `CohortReport` of the $K$ clients of a round: their ids, numbers of examples, training losses at the
# model they received, updates, and who is `valid` (a client may not have answered, or sent numbers that are not
# finite).
#
# Most rules only decide how much each client counts. Such a rule is one function `weigh(state, report)` that returns
# weights [K] and the next state; `from_weights` makes the aggregator of it. This one drops the clients with the highest
# losses and averages the others by their examples, like ARFL with a fixed number of clients instead of a threshold.


# %%
def trimmed_loss(trim=0.5):
    """Averages the valid clients without the share `trim` of them that has the highest training losses."""

    def weigh(state, report):
        losses = jnp.where(report.valid, report.losses, jnp.inf)
        ranks = jnp.argsort(jnp.lexsort((report.client_ids, losses)))  # equal losses: the lower id first
        kept = report.valid & (ranks < jnp.ceil((1 - trim) * report.valid.sum()))
        weights = jnp.where(kept, report.counts, 0)
        return weights / jnp.maximum(weights.sum(), 1), state

    return fedsim.aggregators.from_weights(weigh)


# %% [markdown]
# ## The contract
#
# `check_aggregator` tries a rule on ordinary reports and on awkward ones: clients without an answer, infinite losses,
# huge updates, nobody valid at all. Weights must not be negative, must be zero for invalid clients, and sum to 1 (or
# all be 0: a void round); the order of the clients must not matter; `jit` and `vmap` must change nothing; clients that
# all send the same update must get it. It raises an `AssertionError` where a rule breaks this, and says nothing where
# it doesn't.

# %%
check_aggregator(trimmed_loss())

# %% [markdown]
# Here is the same rule with a slip: it forgets `valid`. A simulation without failures would never show it, but a client
# that reports a low loss and then fails to send its update is chosen.


# %%
def forgetful(trim=0.5):
    """`trimmed_loss`, but it does not look at who is valid."""

    def weigh(state, report):
        ranks = jnp.argsort(jnp.lexsort((report.client_ids, report.losses)))
        weights = jnp.where(ranks < jnp.ceil((1 - trim) * ranks.size), report.counts, 0)
        return weights / jnp.maximum(weights.sum(), 1), state

    return fedsim.aggregators.from_weights(weigh)


try:
    check_aggregator(forgetful())
    caught = ""
except AssertionError as error:
    caught = str(error)
print("Caught:", caught)

# %% [markdown]
# ## The general form
#
# A rule that does not average whole clients writes the three functions itself:
#
# - `init(params, counts, losses)` makes its state, from what all $N$ clients report before the first round;
# - `aggregate(state, report, key)` returns `Aggregate(update, weights)` and the next state. `update` has the shapes of
#   the parameters and is what the server adds to them; `weights` [K] only say who had how much influence;
# - `client_weights(state)` gives the weights [N] of all clients, for rules that keep such weights.
#
# The coordinate-wise median takes each parameter's median over the valid clients. As a client's weight it reports the
# share of parameters in which it is the median.


# %%
def median():
    """The coordinate-wise median of the valid clients' updates."""

    def of_parameter(update, valid):
        """The median over clients of `update` [K, ...], and each client's share in it [K, ...]."""
        valid = valid.reshape(-1, *[1] * (update.ndim - 1))
        num_valid = valid.sum()
        ranked = jnp.sort(jnp.where(valid, update, jnp.inf), axis=0)
        low, high = ranked[jnp.maximum(num_valid - 1, 0) // 2], ranked[num_valid // 2]
        hits = valid * jnp.stack([update == low, update == high])  # clients of equal value share
        shares = jnp.mean(hits / jnp.maximum(hits.sum(axis=1, keepdims=True), 1), axis=0)
        return jnp.where(num_valid > 0, (low + high) / 2, 0), shares

    def aggregate(state, report, key):
        leaves, structure = jax.tree.flatten(report.updates)
        medians, shares = zip(*[of_parameter(leaf, report.valid) for leaf in leaves], strict=True)
        shares = jnp.concatenate([share.reshape(share.shape[0], -1) for share in shares], axis=1)
        update = jax.tree.unflatten(structure, medians)
        return fedsim.Aggregate(update, jnp.mean(shares, axis=1)), state

    return fedsim.Aggregator(
        init=lambda params, counts, losses: (), aggregate=aggregate, client_weights=lambda state: None
    )


check_aggregator(median())

# %% [markdown]
# ## A name
#
# `AGGREGATORS` is a plain dict from names to factories. A name in it can stand in a configuration, as
# `server.aggregator`, and in a sweep. (In Python, `Simulation(aggregator=lambda hparams: trimmed_loss(), ...)` takes a
# rule without a name.)

# %%
fedsim.aggregators.AGGREGATORS["trimmed_loss"] = trimmed_loss
fedsim.aggregators.AGGREGATORS["median"] = median

# %% [markdown]
# ## Table 2, small
#
# The paper's Table 2 has the test accuracy of five rules on clean and corrupted data. Where CIFAR-10 is prepared
# (`fedsim data prepare cifar10`), this takes one column of it: half of the clients with shuffled labels. It starts from
# the configuration's small budget and cuts it down to less than a minute on two cores: four rules, 20 rounds of two
# epochs, one seed, and a small fully connected network in place of the CNN, at a learning rate that suits it. Otherwise
# it takes the quickstart's digits, with four rules, 60 rounds and one seed.
#
# Overrides are written as on the command line: `"key"` fixes a key, `"sweep.key"` sweeps over it.

# %%
notebooks = Path(globals().get("__file__", "here")).parent  # Jupyter starts in the notebook's folder
configs = notebooks / ".." / "configs"
rules = ["fedavg", "arfl", "trimmed_loss", "median"]
if prepared.find("cifar10"):
    overrides = {
        "sweep.server.aggregator": rules,
        "corruption.kind": "shuffling",
        "corruption.fraction": "0.5",
        "arfl.lam": "0.1",
        "model.name": "mlp",
        "model.hidden_sizes": "[32]",
        "client.learning_rate": "0.03",
        "client.epochs": "2",
        "server.num_rounds": "20",
    }
    table2 = configfile.load(configs / "paper" / "table2-cifar10.toml", overrides, budget="small")
else:
    overrides = {
        "sweep.server.aggregator": rules,
        "seed": "0",
        "server.num_rounds": "60",
        "server.eval_every": "10",
        "engine.run_width": "1",  # the runs in turn: for so few, what takes time is compiling
    }
    table2 = configfile.load(configs / "quickstart.toml", overrides)

# %% [markdown]
# A plan says which runs share a program: one program a rule. `run` writes a run folder, from which the table is made;
# here into a temporary place.

# %%
plan = make_plan(table2)
print(f"{len(plan.runs)} runs in {len(plan.groups)} programs, on {plan.runs[0].data.name}")
with tempfile.TemporaryDirectory() as place:
    folder = experiment.run(plan, Path(place) / "run", experiment.Progress())
    results = report.make(folder)
    rows = pq.read_table(folder.path / "rounds.parquet").to_pylist()
rich.print(report.terminal(report.accuracy_tables(results)))

# %% [markdown]
# `rounds.parquet` has a row for each run and evaluated round (README, "Run folders"). Beside the final accuracy stands
# the weight that corrupted clients had on average: rules that look at losses give them little once the model has learnt
# something; FedAvg and the median don't look.


# %%
def scenario(row):
    """For example "clean", or "shuffling 30 %"."""
    return "clean" if row["fraction"] == 0 else f"{row['corruption']} {row['fraction']:.0%}"


last = max(row["round"] for row in rows)
accuracy = {(row["aggregator"], scenario(row)): 100 * row["test_accuracy"] for row in rows if row["round"] == last}
given = {}
for row in rows:
    if row["fraction"] > 0 and row["round"] > 0:
        given.setdefault((row["aggregator"], scenario(row)), []).append(100 * row["corrupted_weight"])
on_corrupted = {cell: float(np.mean(weights)) for cell, weights in given.items()}

figure, panels = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for panel, values in zip(panels, (accuracy, on_corrupted), strict=True):
    places = list(dict.fromkeys(where for _, where in values))
    for i, (rule, colour) in enumerate(zip(rules, COLOURS, strict=False)):
        positions = np.arange(len(places)) + (i - (len(rules) - 1) / 2) * 0.8 / len(rules)
        panel.bar(positions, [values[rule, where] for where in places], 0.75 / len(rules), color=colour, label=rule)
    panel.set_xticks(range(len(places)), places)
panels[0].set(ylabel="Test accuracy (%)", title=f"after {last} rounds, one seed")
panels[1].set(ylabel="Weight of corrupted clients (%)", title="mean over the rounds")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(rules), frameon=False)
plt.show()

# %% [markdown]
# A rule that drops a fixed share by loss can't tell when all are benign, and would pay for it then. The median
# resists a few odd values, not half of the clients. The whole of Table 2 is
# `fedsim run configs/paper/table2-cifar10.toml`, with its two neighbours for FEMNIST and Shakespeare; `--budget small`
# is what two cores manage.
