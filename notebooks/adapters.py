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
# # Adapters over a frozen base
#
# Large models are often fine-tuned by low-rank adapters (LoRA; Hu et al., <https://arxiv.org/abs/2106.09685>): a layer
# $xW$ becomes $xW + xAB$, where $W$ is frozen and only the narrow matrices $A$ and $B$ are trained. In federated
# learning, clients then send adapters instead of models.
#
# Here a small transformer learns to predict the next character of a public text. Ten clients then adapt it to theirs by
# federated learning of adapters. Four of them have shuffled labels; the server uses FedAvg or ARFL.

# %%
# %matplotlib inline
import os
from pathlib import Path
from pydoc_data.topics import topics

import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax.traverse_util import flatten_dict

import fedsim
from fedsim.datasets.shakespeare import parse_roles, read_text

BLUE, ORANGE = "#0072B2", "#D55E00"  # benign, corrupted
WINDOW, NUM_CLASSES = 32, 128  # characters; ASCII codes
NUM_CLIENTS, NUM_CORRUPTED = 10, 4
NUM_TRAIN, NUM_TEST = 64, 32  # windows of each client

# %% [markdown]
# ## Texts
#
# The public text is the help that comes with Python, a part of its language reference.
#
# The clients are the ten longest roles in Shakespeare's plays. The notebook reads them from the folder `shakespeare` in
# `FEDSIM_DATA_DIR`, which must have Project Gutenberg's text of 2011 (`fedsim.datasets.shakespeare.ARCHIVE` names its
# source). The saved output is for these roles.
#
# Without this variable, the clients are the ten longest modules of Python's standard library, and their text is source
# code. All numbers then differ, but the conclusions are the same.

# %%
public_text = "\n".join(topics[name] for name in sorted(topics))
if "FEDSIM_DATA_DIR" in os.environ:
    texts = parse_roles(read_text(Path(os.environ["FEDSIM_DATA_DIR"]) / "shakespeare"))
else:
    texts = {path.name: path.read_text(encoding="utf-8") for path in Path(os.__file__).parent.glob("*.py")}
names = sorted(texts, key=lambda name: (-len(texts[name]), name))[:NUM_CLIENTS]
print(f"public text: {len(public_text):,} characters; clients: {', '.join(names[:2])}, ...")
print(texts[names[0]][:70])

# %% [markdown]
# An example is a window of 32 characters; its labels are the 32 characters that follow each of them. Each client has 64
# windows, and the next 32 windows of its text are test examples.


# %%
def windows(text):
    """Characters x [m, WINDOW] as integers, and the next character y [m, WINDOW] after each."""
    codes = np.frombuffer(text.encode("ascii", "ignore"), np.int8)
    size = (len(codes) - 1) // WINDOW * WINDOW
    return codes[:size].reshape(-1, WINDOW), codes[1 : size + 1].reshape(-1, WINDOW)


clients_windows = [windows(texts[name]) for name in names]
x, y = (np.stack([arrays[i][: NUM_TRAIN + NUM_TEST] for arrays in clients_windows]) for i in (0, 1))
split = lambda a: (a[:, :NUM_TRAIN].reshape(-1, WINDOW), a[:, NUM_TRAIN:].reshape(-1, WINDOW))
(x_train, x_test), (y_train, y_test) = split(x), split(y)
client_ids = np.repeat(np.arange(NUM_CLIENTS), NUM_TRAIN)
dataset = fedsim.from_arrays(x_train, y_train, client_ids, x_test, y_test, inputs="text", num_classes=NUM_CLASSES)

# %% [markdown]
# ## The base
#
# Any flax module that returns logits becomes a task. This one is trained centrally, without clients.


# %%
class Transformer(nn.Module):
    """A causal transformer of two blocks; logits [B, WINDOW, NUM_CLASSES] of the next characters."""

    size: int = 64
    num_heads: int = 4

    @nn.compact
    def __call__(self, x):
        positions = self.param("positions", nn.initializers.normal(0.02), (WINDOW, self.size))
        x = nn.Embed(NUM_CLASSES, self.size)(x) + positions
        for _ in range(2):
            parts = jnp.split(nn.Dense(3 * self.size)(nn.LayerNorm()(x)), 3, axis=-1)
            query, key, value = (part.reshape(*part.shape[:-1], self.num_heads, -1) for part in parts)
            attention = jax.nn.dot_product_attention(query, key, value, is_causal=True)
            x += nn.Dense(self.size)(attention.reshape(x.shape))
            x += nn.Dense(self.size)(nn.relu(nn.Dense(4 * self.size)(nn.LayerNorm()(x))))
        return nn.Dense(NUM_CLASSES)(nn.LayerNorm()(x))


base_task = fedsim.classification(Transformer(), dataset.train.x[0])
num_steps, batch_size = 300, 64
optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, num_steps))


@jax.jit
def train_base(key, x, y):
    """The parameters after central training on windows `x` with labels `y`."""
    params = base_task.init(key).params
    mask = jnp.ones(batch_size, bool)

    def step(carry, key):
        params, state = carry
        batch = jax.random.randint(key, (batch_size,), 0, len(x))
        loss = lambda params: base_task.loss(fedsim.Variables(params), x[batch], y[batch], mask, key)[0]
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(key, num_steps))
    return params


base = train_base(jax.random.key(0), *windows(public_text))

# %% [markdown]
# ## The adapters
#
# `with_adapters` makes a task whose parameters are $A$ and $B$ of each dense layer; its first model is the base, since
# $B = 0$. flax's `intercept_methods` adds $xAB$ to the layer's output, so the module stays as it is, and $W + AB$ is
# never computed. That matters: it would be a matrix of full size for each client.
#
# `with_frozen` declares the base an argument of compiled programs. All clients read the same arrays; only what is
# trained exists once for each client.


# %%
def with_adapters(task, base, rank=4):
    """`task` with frozen parameters `base`: each dense layer x W becomes x W + x A B, of which A and B are trained."""
    shapes = {"/".join(path[:-1]): a.shape for path, a in flatten_dict(base).items() if path[-1] == "kernel"}

    def init(key):
        keys = jax.random.split(key, len(shapes))
        return {
            layer: {"a": jax.random.normal(key, (n, rank)) / n**0.5, "b": jnp.zeros((rank, m))}
            for key, (layer, (n, m)) in zip(keys, shapes.items(), strict=True)
        }

    def make_task(base):
        def call(function, adapters, *examples):
            def add(layer, inputs, options, context):
                outputs = layer(*inputs, **options)
                adapter = adapters.get("/".join(context.module.path))
                return outputs if adapter is None else outputs + inputs[0] @ adapter["a"] @ adapter["b"]

            with nn.intercept_methods(add):
                return function(fedsim.Variables(base), *examples)

        loss = lambda adapters, *examples: call(task.loss, adapters, *examples)[0]
        metrics = lambda adapters, *examples: call(task.metrics, adapters, *examples)
        return fedsim.stateless(init, loss, metrics)

    return fedsim.with_frozen(make_task, base)


task = with_adapters(base_task, base)
adapters = task.init(jax.random.key(0)).params

# %% [markdown]
# The server holds the updates of all clients of a round, stacked along an axis of clients. Their size is what adapters
# save, and so is what a client would send.

# %%
trained = {"all parameters": base, "adapters": adapters}
num_parameters = {name: sum(a.size for a in jax.tree.leaves(tree)) for name, tree in trained.items()}
num_bytes = {name: sum(a.nbytes for a in jax.tree.leaves(tree)) for name, tree in trained.items()}
for name in trained:
    row = name, num_parameters[name], num_bytes[name] / 1024, NUM_CLIENTS * num_bytes[name] / 1024
    print("{:14s} {:7,} numbers, {:4.0f} KiB for each client, {:5,.0f} KiB for ten".format(*row))
print(f"ratio: {num_bytes['all parameters'] / num_bytes['adapters']:.1f}")

# %% [markdown]
# ## Federated fine-tuning
#
# All ten clients train in each round, with Adam. The runs differ only in their data and their λ, so they share one
# program. ARFL with a large λ is FedAvg; here λ = 10⁶ M stands for FedAvg.
#
# `simulation.bind` takes the base as an argument of the program. `width=1` trains one client after another, which suits
# a CPU; the default trains all in lockstep, which suits an accelerator.

# %%
simulation = fedsim.Simulation(
    task,
    method=lambda hparams, round: fedsim.Method(
        fedsim.aggregators.arfl(lam=hparams.settings["lam"]),
        fedsim.ClientOptimizer(optax.adam(hparams.learning_rate), hparams.learning_rate),
    ),
    cohort=fedsim.CohortOptions(size=NUM_CLIENTS, width=1),
    training=fedsim.TrainingOptions(batch_size=8, max_num_examples=dataset.max_num_examples),
)


@jax.jit
def fine_tune(frozen, clients, lam):
    """The adapters after ten rounds, and the clients' weights and losses [round, client]."""
    bound = simulation.bind(frozen)
    hparams = fedsim.HParams(learning_rate=0.01, settings={"lam": lam})
    state = bound.init(jax.random.key(0), clients, hparams)
    state, records = bound.run_rounds(state, clients, hparams, max_rounds=10)
    order = jnp.argsort(records.client_ids, axis=1)
    return state.variables, *(jnp.take_along_axis(a, order, axis=1) for a in (records.weights, records.losses))


@jax.jit
def measure_accuracy(frozen, variables):
    """The fraction of the next characters of the clients' test examples that the most likely one is."""
    metrics = fedsim.evaluate(task.bind(frozen), variables, dataset.x_test, dataset.y_test)
    return metrics.num_correct / metrics.num_examples


# %% [markdown]
# Labels are shuffled by window: a corrupted client's windows get the labels of others of its windows.

# %%
shuffle = lambda number: fedsim.corrupt(
    fedsim.corruption.shuffling(), jax.random.key(0), dataset.train, dataset.spec, num_corrupted=number
)
clean, corrupted = shuffle(0), shuffle(NUM_CORRUPTED)
is_corrupted = np.asarray(corrupted.corrupted)
runs = {
    "FedAvg, clean clients": (clean, 1e6),
    "FedAvg, 40 % corrupted": (corrupted, 1e6),
    "ARFL, 40 % corrupted": (corrupted, 1.0),
}
accuracy = {"base": float(measure_accuracy(base, fedsim.Variables(adapters)))}
weights, losses = {}, {}
for name, (clients, lam) in runs.items():
    variables, weights[name], losses[name] = fine_tune(base, clients, lam)
    accuracy[name] = float(measure_accuracy(base, variables))
for name, value in accuracy.items():
    print(f"{name:23s} accuracy {value:.1%}")

# %% [markdown]
# ## Weights
#
# The base predicts clean labels better than shuffled ones, so losses tell the clients apart from the first round on.
# ARFL gives the corrupted clients little or no weight at first and none in the end. The model ends with a higher
# accuracy than with FedAvg, which weights all clients equally here.

# %%
arfl = "ARFL, 40 % corrupted"
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
labels = {"Training loss (nats)": losses[arfl], "Client's weight (%)": 100 * weights[arfl]}
for panel, (label, values) in zip(panels, labels.items(), strict=True):
    for i in range(NUM_CLIENTS):
        color, style = (ORANGE, "--") if is_corrupted[i] else (BLUE, "-")
        panel.plot(range(1, 11), np.asarray(values)[:, i], style, color=color)
    panel.set(xlabel="Round", ylabel=label, title="ARFL (corrupted clients dashed)", ylim=(0, None))
panels[1].axhline(100 / NUM_CLIENTS, color="black", linewidth=1, linestyle=":", label="FedAvg, all clients")
panels[1].legend(frameon=False, loc="center right")
plt.show()

# %%
for name in ("FedAvg, 40 % corrupted", arfl):
    first, last = (float(weights[name][i][is_corrupted].sum()) for i in (0, -1))
    print(f"{name}: weight of the corrupted clients {first:.1%} in the first round, {last:.1%} in the last")

# %% [markdown]
# One seed, ten clients and a small model do not show how large these differences are in general. `with_adapters` works
# with any module whose layers to adapt are `flax.linen.Dense`. In a configuration, a model's factory returns the task
# (`docs/extending/models-and-data.md`).
