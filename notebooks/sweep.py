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
# # A sweep is one program
#
# This notebook runs a grid of 5 values of λ, 5 fractions of corrupted clients and 2 seeds: 50 training runs, compiled
# once. λ, the number of corrupted clients and the seed are inputs of the compiled program.

# %%
import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import fedsim

# %% [markdown]
# ## From a configuration
#
# Twenty clients share scikit-learn's handwritten digits evenly; ten of them train in each round. A configuration is a
# TOML file or a dict of the same form. Keywords override its keys, with two underscores for a dot; `fedsim.sweep` gives
# a key several values.

# %%
configuration = {
    "name": "lambda-and-corruption",
    "data": {"name": "digits", "num_clients": 20},
    "corruption": {"kind": "shuffling"},
    "model": {"name": "mlp"},
    "mlp": {"hidden_sizes": [32]},
    "client": {"learning_rate": 0.1, "epochs": 3, "batch_size": 10},
    "server": {"aggregator": "arfl", "cohort_size": 10, "num_rounds": 30, "eval_every": 10},
}
lams = [0.01, 0.1, 1.0, 10.0, 100.0]
fractions = [0.0, 0.2, 0.4, 0.5, 0.6]

# %%
experiment = fedsim.load(
    configuration,
    corruption__fraction=fedsim.sweep(fractions),
    arfl__lam=fedsim.sweep(lams),
    seed=fedsim.sweep([0, 1]),
)
result = fedsim.run(experiment, progress=False)

# %% [markdown]
# The run folder says how the runs were grouped: runs that differ only in inputs of the program form a
# group, and a group compiles once. fedsim chooses for the machine how many of its runs train in lockstep and on which
# devices (`engine.run_width` overrides it).

# %%
groups, (compiling, running) = result.folder.groups(), result.seconds
print(f"{len(result.runs)} runs in {len(groups)} program")
print(f"{compiling:.1f} s compiling, {running:.1f} s running")

# %% [markdown]
# ## Results
#
# Two tables of ARFL's last round, lambda by share of corrupted clients, in percent, averaged over the seeds.
#
# Between 0.1 M and M, corrupted clients get no weight at any fraction, and the accuracy hardly depends on their number:
# only the benign clients train. A large λ weights all clients by their examples, as FedAvg does. A very small λ selects
# a single client. If it is corrupted, it remains selected: the model fits its wrong labels, so its loss stays the
# lowest.

# %%
last = result.rounds.to_pandas().query("aggregator == 'arfl' and round == 30")
grid = 100 * last.pivot_table(["test_accuracy", "corrupted_weight"], "lam", "fraction")


def heat_map(axes, values, title, cmap):
    """Draws a grid [λ, rate] of percentages with its numbers."""
    image = axes.imshow(values, cmap=cmap, aspect="auto", origin="lower")
    middle = (values.min() + values.max()) / 2
    for (row, column), value in np.ndenumerate(values):
        color = "black" if (value > middle) == (cmap == "viridis") else "white"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=color)
    axes.set(title=title, xlabel="Corrupted clients (%)", ylabel="λ / M")
    axes.set_xticks(range(len(fractions)), [f"{100 * fraction:.0f}" for fraction in fractions])
    axes.set_yticks(range(len(lams)), [f"{lam:g}" for lam in lams])
    axes.figure.colorbar(image, ax=axes)


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
heat_map(left, grid["test_accuracy"].to_numpy(), "Test accuracy (%)", "viridis")
heat_map(right, grid["corrupted_weight"].to_numpy(), "Weight of corrupted clients (%)", "Oranges")
plt.show()

# %% [markdown]
# ## From Python
#
# A configuration is turned into a `Simulation`, whose methods are pure functions of a key, the clients' data and
# `HParams`. So `jit`, `vmap` and `lax.map` apply to it, and you can write your own loop. `fedsim.from_arrays` divides
# the data, and the model is any flax module. A function of `HParams` and the round returns the `Method`: that is where
# the rule gets its λ.

# %%
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
x, y = digits.data[order].astype(np.float32) / 16, digits.target[order]
dataset = fedsim.from_arrays(x[360:], y[360:], np.arange(len(y) - 360) % 20, x[:360], y[:360])

simulation = fedsim.Simulation(
    task=fedsim.classification(nn.Sequential([nn.Dense(32), nn.relu, nn.Dense(10)]), dataset.train.x[0]),
    method=lambda hparams, round: fedsim.Method(
        fedsim.aggregators.arfl(lam=hparams.settings["arfl.lam"]), fedsim.client_sgd(hparams)
    ),
    cohort=fedsim.CohortOptions(size=10),
    training=fedsim.TrainingOptions(batch_size=10, epochs=3, max_num_examples=dataset.max_num_examples),
)

# %% [markdown]
# One run as a function of the swept numbers. Corruption happens inside: the choice of clients whose labels are shuffled
# depends only on the seed and the traced `num_corrupted`. Python runs this function only when JAX traces it, so
# `num_traces` counts traces.

# %%
num_traces = 0


def train(lam, num_corrupted, seed):
    """Test accuracy after 15 rounds, and the weight of corrupted clients in the last five."""
    global num_traces
    num_traces += 1
    corruption_key, key = jax.random.split(jax.random.key(seed))
    shuffling = fedsim.corruption.shuffling()
    clients = fedsim.corrupt(shuffling, corruption_key, dataset.train, dataset.spec, num_corrupted)
    hparams = fedsim.HParams(learning_rate=0.1, settings={"arfl.lam": lam})
    state, records = simulation.run_rounds(simulation.init(key, clients, hparams), clients, hparams, max_rounds=15)
    metrics = fedsim.evaluate(simulation.task, state.variables, dataset.x_test, dataset.y_test)
    on_corrupted = jnp.sum(records.weights * clients.corrupted[records.client_ids], axis=1)
    return metrics.num_correct / metrics.num_examples, jnp.mean(on_corrupted[-5:])


# %% [markdown]
# `vmap` over $S$ runs trains $S \times K$ models in lockstep, which fills an accelerator. A few models are enough to
# fill a CPU; there the gain is that all runs share one program, not that a run gets faster. Memory grows with $S$: each
# run has parameters, updates and labels. `lax.map` runs one after another, also in one program; with `batch_size=b` it
# runs $b$ of them in lockstep. fedsim does the latter.
#
# `lower` and `compile` create the programs explicitly; calling these programs never compiles again.

# %%
grid_of_runs = jnp.meshgrid(jnp.array([0.1, 1.0, 100.0]), jnp.array([0, 8]), jnp.arange(2), indexing="ij")
sweep = [axis.ravel() for axis in grid_of_runs]
in_lockstep = jax.jit(lambda sweep: jax.vmap(train)(*sweep)).lower(sweep).compile()
in_turn = jax.jit(lambda sweep: jax.lax.map(lambda run: train(*run), sweep)).lower(sweep).compile()
programs = {"in lockstep": in_lockstep, "in turn": in_turn}
accuracy, mebibytes = {}, {}
for name, program in programs.items():
    accuracy[name], on_corrupted = program(sweep)
    mebibytes[name] = program.memory_analysis().temp_size_in_bytes / 2**20
    print(f"{len(sweep[0])} runs {name}: {mebibytes[name]:.1f} MiB of temporary memory")
difference = float(jnp.abs(accuracy["in lockstep"] - accuracy["in turn"]).max())
print(f"Largest difference between their accuracies (rounding, amplified by training): {difference:.1%}")

# %% [markdown]
# Other values of the same shape, such as other seeds, need no compilation.

# %%
other_seeds, _ = in_turn([*sweep[:2], sweep[2] + 2])
print(f"{num_traces} traces, one for each program")
assert num_traces == 2
for lam, num_corrupted, seed, *numbers in zip(*sweep, accuracy["in turn"], on_corrupted, other_seeds, strict=True):
    if num_corrupted and not seed:
        row = "λ = {:5.1f} M, 8 of 20 corrupted: accuracy {:.1%}, weight of corrupted clients {:5.1%}; seed 2: {:.1%}"
        print(row.format(lam, *numbers))

# %% [markdown]
# ## From the shell
#
# Saved as `sweep.toml`, a configuration runs with progress, tables and figures, and resumes after an interruption. Each
# block `[[sweep]]` in it is a grid over any keys.
#
# ```sh
# fedsim run sweep.toml --dry-run     # runs, programs and widths
# fedsim run sweep.toml
# ```
#
# Rules and attacks can be swept, too, as branches of one program: see the notebook `robustness`. Everything else
# compiles another program: the model, the cohort size, the number of epochs, and corruption of images instead of
# labels.
