"""A workload run by FedJAX: its `federated_averaging` with the default backend, which jits a client's step.

Prints one JSON line. Models are Haiku's. FedJAX would fill a client's last batch by sampling examples again; here the
batch is padded to one of a few sizes, as FedJAX does for evaluation.
"""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import exchange
import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg

NUM_LAST_SIZES = 4  # of a client's last batch: B, B / 2, B / 4, B / 8
FEDSIM_GATES, HAIKU_GATES = "ifgo", "igfo"


class StoredOrder(fedjax.ClientDataset):
    """A client with one pass over its examples in the stored order; the last batch is padded and masked."""

    def shuffle_repeat_batch(self, hparams: fedjax.ShuffleRepeatBatchHParams) -> Iterable[dict[str, np.ndarray]]:
        return self.padded_batch(batch_size=hparams.batch_size, num_batch_size_buckets=NUM_LAST_SIZES)


def cifar10_cnn(x: jax.Array, settings: dict[str, Any]) -> jax.Array:
    """Logits [B, num_classes] of x [B, 32, 32, 3]."""
    x = jax.nn.relu(pool(hk.Conv2D(32, 3, padding="VALID", name="Conv_0")(x)))
    x = jax.nn.relu(pool(hk.Conv2D(64, 3, padding="VALID", name="Conv_1")(x)))
    x = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID", name="Conv_2")(x))
    return head(x, 64, settings)


def femnist_cnn(x: jax.Array, settings: dict[str, Any]) -> jax.Array:
    """Logits [B, num_classes] of x [B, 28, 28, 1]."""
    x = jax.nn.relu(pool(hk.Conv2D(32, 5, name="Conv_0")(x)))
    x = jax.nn.relu(pool(hk.Conv2D(64, 5, name="Conv_1")(x)))
    return head(x, 126, settings)


def mlp(x: jax.Array, settings: dict[str, Any]) -> jax.Array:
    """Logits [B, num_classes] of x [B, features]."""
    return head(x, settings["module"]["hidden_sizes"][0], settings)


def char_lstm(x: jax.Array, settings: dict[str, Any]) -> jax.Array:
    """Logits [B, num_classes] of characters x [B, T]."""
    module = settings["module"]
    x = hk.Embed(settings["num_classes"], module["embedding_size"], name="embedding")(x)
    for i in range(module["num_layers"]):
        lstm = hk.LSTM(module["hidden_size"], name=f"LSTM_{i}")
        x, _ = hk.dynamic_unroll(lstm, x, lstm.initial_state(x.shape[0]), time_major=False)
    return hk.Linear(settings["num_classes"], name="Dense_0")(x[:, -1])


def pool(x: jax.Array) -> jax.Array:
    """The 2x2 max pool of x [B, H, W, C]."""
    return hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def head(x: jax.Array, hidden: int, settings: dict[str, Any]) -> jax.Array:
    """Two dense layers on x [B, ...]."""
    x = jax.nn.relu(hk.Linear(hidden, name="Dense_0")(hk.Flatten()(x)))
    return hk.Linear(settings["num_classes"], name="Dense_1")(x)


MODELS = {"Cifar10CNN": cifar10_cnn, "FemnistCNN": femnist_cnn, "MLP": mlp, "CharLSTM": char_lstm}


def to_haiku(params: dict[str, np.ndarray]) -> dict[str, dict[str, jax.Array]]:
    """Parameters by flax's path as Haiku's. Its LSTM has one matrix, and adds 1 to the bias of the forget gate."""
    result: dict[str, dict[str, Any]] = {}
    for layer in dict.fromkeys(path.split("/")[0] for path in params):
        if layer == "embedding":
            result["embedding"] = {"embeddings": params["embedding/kernel"]}
        elif layer.startswith("LSTM"):
            kernel = np.concatenate([params[f"{layer}/input_kernel"], params[f"{layer}/recurrent_kernel"]])
            bias = params[f"{layer}/bias"] - forget_bias(FEDSIM_GATES, params[f"{layer}/bias"].size)
            ordered = lambda a: reorder(a, FEDSIM_GATES, HAIKU_GATES)
            result[f"{layer}/linear"] = {"w": ordered(kernel), "b": ordered(bias)}
        else:
            result[layer] = {"w": params[f"{layer}/kernel"], "b": params[f"{layer}/bias"]}
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), result)


def to_flax(params: dict[str, dict[str, jax.Array]]) -> dict[str, np.ndarray]:
    """The inverse of `to_haiku`."""
    result = {}
    for name, leaves in jax.tree.map(np.asarray, params).items():
        layer = name.split("/")[0]
        if layer == "embedding":
            result["embedding/kernel"] = leaves["embeddings"]
        elif layer.startswith("LSTM"):
            kernel, bias = (reorder(leaves[leaf], HAIKU_GATES, FEDSIM_GATES) for leaf in "wb")
            size = bias.size // len(FEDSIM_GATES)
            result |= {f"{layer}/input_kernel": kernel[:-size], f"{layer}/recurrent_kernel": kernel[-size:]}
            result[f"{layer}/bias"] = bias + forget_bias(FEDSIM_GATES, bias.size)
        else:
            result |= {f"{layer}/kernel": leaves["w"], f"{layer}/bias": leaves["b"]}
    return result


def reorder(blocks: np.ndarray, old: str, new: str) -> np.ndarray:
    """Reorders the gates of `blocks` [..., 4H] from the order `old` to the order `new`."""
    by_gate = dict(zip(old, np.split(blocks, len(old), axis=-1), strict=True))
    return np.concatenate([by_gate[gate] for gate in new], axis=-1)


def forget_bias(gates: str, size: int) -> np.ndarray:
    """Haiku's addition to the gates' bias [size]: 1 for the forget gate, 0 for the others."""
    return np.repeat([float(gate == "f") for gate in gates], size // len(gates))


def prepare(work: exchange.Work) -> exchange.Train:
    """A function that trains a number of rounds from the initial parameters."""
    settings = work.settings

    def forward(batch: dict[str, jax.Array]) -> jax.Array:
        x = batch["x"]
        x = x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x
        x = x.astype(jnp.int32) if jnp.issubdtype(x.dtype, jnp.integer) else x
        return MODELS[settings["model"]](x, settings)

    model = fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch={"x": work.x[:1], "y": work.y[:1]},
        train_loss=lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )
    algorithm = fed_avg.federated_averaging(
        grad_fn=fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(settings["learning_rate"]),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=settings["batch_size"]),
    )
    slices = {client: work.examples(client) for client in np.unique(work.cohorts).tolist()}
    datasets = {client: StoredOrder({"x": work.x[s], "y": work.y[s]}) for client, s in slices.items()}
    key = jax.random.PRNGKey(0)  # unused

    def train(rounds: int) -> dict[str, np.ndarray]:
        state = algorithm.init(to_haiku(work.params))
        for r in range(rounds):
            state, _ = algorithm.apply(state, [(client, datasets[client], key) for client in work.cohort(r)])
        return to_flax(state.params)

    return train


if __name__ == "__main__":
    packages = {package: version(package) for package in ("fedjax", "jax", "jaxlib", "dm-haiku")}
    exchange.run_peer("fedjax", prepare, packages, exchange.parser(__doc__).parse_args())
