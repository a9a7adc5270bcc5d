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
# λ, the number of corrupted clients and the seed are data of a compiled program, not part of its shape. So a grid over
# all three compiles once: here 5 values of λ, 5 corruption rates and 2 seeds, 50 training runs in one call.

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fedsim
from fedsim.config.schema import DataConfig
from fedsim.config.toml import parse
from fedsim.engine import build
from fedsim.engine.programs import group_runs
from fedsim.models import MLP

# %% [markdown]
# Twenty clients share scikit-learn's handwritten digits evenly; ten of them train in each round.

# %%
dataset = build.dataset(DataConfig(name="digits", num_clients=20, partition="iid"))
simulation = fedsim.Simulation(
    task=fedsim.classification(MLP(10, (32,)), dataset.train.x[0]),
    aggregator=lambda hparams: fedsim.aggregators.arfl(hparams.lam),
    cohort_size=10,
    batch_size=10,
    epochs=5,
    max_count=dataset.max_count,
)

# %% [markdown]
# One run, as a function of what the sweep varies. Corruption happens inside: who has its labels shuffled depends on the
# seed and on the traced `num_corrupted` alone. Python runs this function only when JAX traces it, so that the counter
# tells how often that was.

# %%
num_traces = 0


def train(lam, num_corrupted, seed):
    """Test accuracy after 30 rounds, and the corrupted clients' share of the weight in the last ten."""
    global num_traces
    num_traces += 1
    corruption_key, key = jax.random.split(jax.random.key(seed))
    clients = fedsim.corrupt(fedsim.corruption.shuffling, corruption_key, dataset.train, num_corrupted)
    hparams = fedsim.HParams(learning_rate=0.1, lam=lam)
    state, records = simulation.run(simulation.init(key, clients, hparams), clients, hparams, max_rounds=30)
    metrics = fedsim.evaluate(simulation.task, state.params, dataset.x_test, dataset.y_test)
    on_corrupted = jnp.sum(records.weights * clients.corrupted[records.client_ids], axis=1)
    return metrics.num_correct / metrics.num_examples, jnp.mean(on_corrupted[-10:])


# %% [markdown]
# Three `vmap`s make the grid: the result has the axes λ, rate and seed. `lower` and `compile` make the program
# explicitly; what they return cannot compile again, it only runs.

# %%
lams = jnp.array([0.01, 0.1, 1.0, 10.0, 100.0])
fractions = np.array([0.0, 0.2, 0.4, 0.5, 0.6])
nums_corrupted = jnp.array(np.round(fractions * dataset.num_clients), int)
seeds = jnp.arange(2)

over_seeds = jax.vmap(train, in_axes=(None, None, 0))
over_rates = jax.vmap(over_seeds, in_axes=(None, 0, None))
over_lams = jax.vmap(over_rates, in_axes=(0, None, None))

start = time.perf_counter()
program = jax.jit(over_lams).lower(lams, nums_corrupted, seeds).compile()
compiled = time.perf_counter()
accuracy, on_corrupted = jax.block_until_ready(program(lams, nums_corrupted, seeds))
ran = time.perf_counter()
print(f"{accuracy.size} runs: {compiled - start:.1f} s compiling, {ran - compiled:.1f} s running; traces: {num_traces}")

# %% [markdown]
# Other values of the same shape need no compilation: here a finer grid between M and 10 M, with other seeds.

# %%
start = time.perf_counter()
finer, _ = jax.block_until_ready(program(jnp.array([1.0, 2.0, 3.0, 5.0, 8.0]), nums_corrupted, seeds + 2))
print(f"{finer.size} more runs: {time.perf_counter() - start:.1f} s running; traces: {num_traces}")
assert num_traces == 1

# %% [markdown]
# ## What it shows
#
# Between 0.1 M and M, corrupted clients get no weight at any rate, and the accuracy hardly depends on their number: the
# benign clients train alone. A large λ trusts everybody, as FedAvg does. A very small one trusts a single client. If
# that is a corrupted one, it stays: the model learns its wrong labels, and so its loss remains the lowest.


# %%
def heat_map(axes, values, title, cmap):
    """A grid [λ, rate] in percent, with its numbers."""
    image = axes.imshow(values, cmap=cmap, aspect="auto", origin="lower")
    middle = (values.min() + values.max()) / 2
    for (row, column), value in np.ndenumerate(values):
        colour = "black" if (value > middle) == (cmap == "viridis") else "white"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour)
    axes.set(title=title, xlabel="Corrupted clients (%)", ylabel="λ / M")
    axes.set_xticks(range(len(fractions)), [f"{100 * fraction:.0f}" for fraction in fractions])
    axes.set_yticks(range(len(lams)), [f"{lam:g}" for lam in lams])
    axes.figure.colorbar(image, ax=axes)


mean_accuracy, mean_on_corrupted = (100 * np.asarray(a).mean(axis=2) for a in (accuracy, on_corrupted))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
heat_map(left, mean_accuracy, "Test accuracy (%)", "viridis")
heat_map(right, mean_on_corrupted, "Weight of corrupted clients (%)", "Oranges")
plt.show()

# %% [markdown]
# ## What a mapped sweep costs
#
# `vmap` over $S$ runs trains $S \times K$ models in lockstep. That is what fills an accelerator. A CPU is busy with a
# few models; there the gain is that one program serves all runs, not that a run gets faster. Memory grows with $S$:
# parameters, updates and labels exist once a run (images are shared, unless the corruption is in them). And all runs
# take as many steps as the one with the largest clients.
#
# `jax.lax.map` takes the same runs in turn, in one program as well. With `batch_size=b` it takes $b$ of them in
# lockstep; choose a divisor of $S$, since a remainder is a second loop to compile.

# %%
runs = [axis.ravel() for axis in jnp.meshgrid(lams, nums_corrupted, seeds, indexing="ij")]
in_turn = jax.jit(lambda runs: jax.lax.map(lambda run: train(*run), runs)).lower(runs).compile()
start = time.perf_counter()
accuracy_in_turn, _ = jax.block_until_ready(in_turn(runs))
seconds = {"in lockstep": ran - compiled, "in turn": time.perf_counter() - start}
mebibytes = {
    name: compiled_program.memory_analysis().temp_size_in_bytes / 2**20
    for name, compiled_program in (("in lockstep", program), ("in turn", in_turn))
}
for name in seconds:
    print(f"{accuracy.size} runs {name}: {seconds[name]:.1f} s, {mebibytes[name]:.1f} MiB of temporary memory")
difference = float(jnp.abs(accuracy_in_turn - accuracy.ravel()).max())
print(f"Largest difference between their accuracies (rounding, amplified by training): {difference:.1%}")

# %% [markdown]
# ## The same for `fedsim run`
#
# A configuration says the same as a `[[sweep]]` block: a grid over any keys. fedsim puts runs that differ in data alone
# into a group, which compiles once; how many of them run in lockstep, and on which devices, it chooses for the machine
# (`engine.run_width` overrides it).

# %%
TOML = """
name = "lambda-and-corruption"

[data]
name = "digits"
num_clients = 20

[model]
name = "mlp"
hidden_sizes = [32]

[client]
learning_rate = 0.1
epochs = 5
batch_size = 10

[server]
aggregator = "arfl"
cohort_size = 10
num_rounds = 30

[[sweep]]
corruption.kind = "shuffling"
corruption.fraction = [0.0, 0.2, 0.4, 0.5, 0.6]
arfl.lam = [0.01, 0.1, 1.0, 10.0, 100.0]
seed = [0, 1]
"""
experiment_runs = parse(TOML).runs()
groups = group_runs(experiment_runs)
print(f"{len(experiment_runs)} runs in {len(groups)} program")

# %% [markdown]
# Saved as `sweep.toml`, it runs with progress, run folder and figures, and continues after an interruption:
#
# ```sh
# fedsim run sweep.toml --dry-run     # runs, programs and widths
# fedsim run sweep.toml
# ```
#
# What is not data starts another program: the rule, the model, the cohort's size, the number of epochs, and corruption
# of images rather than labels.
