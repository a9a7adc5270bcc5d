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
# # A custom aggregator
#
# This notebook defines one rule in a cell and one in a file, checks both against the contract of all rules, and sweeps
# over a setting of the second next to built-in rules. An aggregator is three pure functions of what the server sees.

# %%
# %matplotlib inline
from pathlib import Path

import jax.numpy as jnp
from trimmed_fraction import trimmed_fraction

import fedsim
from fedsim.testing import check_aggregator

# %% [markdown]
# ## A rule that chooses weights
#
# The server observes a `CohortReport` of the $K$ clients of a round: their ids, numbers of examples, training losses at
# the model they received, updates, and whether they are `valid` (a client may not have answered, or may have sent
# non-finite numbers).
#
# Most rules only choose the clients' weights. Such a rule is one function `compute_weights(state, report, key)` that
# returns weights [K] and the next state; `from_weights` turns it into an aggregator. This one drops the clients with
# the highest losses and averages the rest by their examples, like ARFL with a fixed number of clients instead of a
# threshold.


# %%
def trimmed_loss(trim=0.5):
    """Averages the valid clients without the fraction `trim` that has the highest training losses."""

    def compute_weights(state, report, key):
        losses = jnp.where(report.valid, report.losses, jnp.inf)
        ranks = jnp.argsort(jnp.lexsort((report.client_ids, losses, ~report.valid)))  # equal losses: the lower id first
        kept = report.valid & (ranks < jnp.ceil((1 - trim) * report.valid.sum()))
        weights = jnp.where(kept, report.num_examples, 0)
        return weights / jnp.maximum(weights.sum(), 1), state

    return fedsim.aggregators.from_weights(compute_weights)


# %% [markdown]
# ## The contract
#
# `check_aggregator` tries a rule on ordinary reports and on edge cases: clients without an answer, infinite losses,
# huge updates, no valid client at all. Weights must be nonnegative, zero for invalid clients, and sum to 1 (or all be
# 0, which skips the round); the order of the clients must not matter; `jit` and `vmap` must not change the result; if
# all clients send the same update, it must be the aggregate. The check raises an `AssertionError` if a rule violates
# the contract.

# %%
check_aggregator(trimmed_loss())

# %% [markdown]
# Here is the same rule with a bug: it ignores `valid`. A simulation without dropout would never show it, but the rule
# selects a client that reports a low loss and then fails to send its update.


# %%
def ignores_valid(trim=0.5):
    """`trimmed_loss`, but it ignores `valid`."""

    def compute_weights(state, report, key):
        ranks = jnp.argsort(jnp.lexsort((report.client_ids, report.losses)))
        weights = jnp.where(ranks < jnp.ceil((1 - trim) * ranks.size), report.num_examples, 0)
        return weights / jnp.maximum(weights.sum(), 1), state

    return fedsim.aggregators.from_weights(compute_weights)


try:
    check_aggregator(ignores_valid())
    caught = ""
except AssertionError as error:
    caught = str(error)
print("Caught:", caught)

# %% [markdown]
# ## The general form, in a file
#
# A rule that is not a weighted average of clients defines the three functions:
#
# - `init(variables, num_examples, losses)` returns its state, from the reports of all $N$ clients before the first
#   round;
# - `aggregate(state, report, key)` returns `Aggregate(update, weights)` and the next state. The server adds `update` to
#   its model; `weights` [K] describe each client's influence and are only recorded;
# - `client_weights(state)` returns the weights [N] of all clients, for rules that keep such weights.
#
# `trimmed_fraction.py`, in the folder of this notebook, has a coordinate-wise trimmed mean that trims a fraction of the
# clients; the built-in `trimmed_mean` trims a number. The function that returns the rule is its factory, and the
# factory's annotated keywords are its settings: type, bounds and a description. `Traced` makes the number data of the
# program: all its values share one compilation.

# %%
print(Path("trimmed_fraction.py").read_text())

# %%
check_aggregator(trimmed_fraction(trim=0.3))

# %% [markdown]
# ## In a configuration
#
# A configuration accepts `file.py:factory` and `package.module:factory` instead of a built-in name. The settings of the
# factory are then keys of a section with its name, here `trimmed_fraction.trim`, and are validated like all keys. No
# registration is needed, so other processes and TOML files can use the rule in the same way.
#
# For a comparison, 30 % of twenty clients have clean data and send their update with the opposite sign.

# %%
configuration = {
    "name": "custom-aggregator",
    "data": {"name": "digits", "num_clients": 20, "partition": "dirichlet"},
    "corruption": {"fraction": 0.3},
    "attack": {"kind": "sign_flip"},
    "model": {"name": "mlp"},
    "mlp": {"hidden_sizes": [32]},
    "client": {"learning_rate": 0.1, "epochs": 2, "batch_size": 10},
    "server": {"cohort_size": 10, "num_rounds": 40, "eval_every": 10},
}
rules = ["fedavg", "arfl", "trimmed_fraction.py:trimmed_fraction"]
trims = [0.1, 0.2, 0.3, 0.4]

# %%
experiment = fedsim.load(
    configuration,
    server__aggregator=fedsim.sweep(rules),
    trimmed_fraction__trim=fedsim.sweep(trims),
    seed=fedsim.sweep([0, 1]),
)
result = fedsim.run(experiment, progress=False)

# %%
manifest = result.folder.read_manifest()
print(f"{len(experiment.runs())} runs in {len(manifest['plan'])} groups, one for each rule")
print(result)

# %% [markdown]
# `result.summary` has these numbers and more, a row for each rule and setting; `result.figures()` are the figures of
# `fedsim report`, one of them for each swept setting.

# %%
summary = result.summary.to_pandas()
summary[["aggregator", "settings", "final_accuracy_mean", "final_accuracy_std"]]

# %%
figures = result.figures()
figures["accuracy_over_trimmed_fraction-trim"]

# %% [markdown]
# FedAvg loses much accuracy to the attack. Both robust rules lose less: the trimmed mean drops extreme values, ARFL
# gives less weight to clients with high losses. Neither is robust to every attack, and two seeds are few.
#
# The paper's Table 2 is `fedsim run configs/paper/table2-cifar10.toml`, and likewise for FEMNIST and Shakespeare. Add
# your rule with `--sweep.server.aggregator arfl notebooks/trimmed_fraction.py:trimmed_fraction`.
