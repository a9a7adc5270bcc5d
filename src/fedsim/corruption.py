"""Corruption of training data: which clients, and what happens to their examples (the paper's "Experimental Setup").

A corruption is `(key, data, corrupted[N]) -> data`: pure, on device, once a run before its first round. The test set is
never touched.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from fedsim.types import Array, ClientData

NOISE_STD = 0.7  # of the Gaussian noise on pixels in [0, 1]
SHIFT = 2.0  # standard deviation of a shift, in those of the inputs


def choose_clients(key: Array, num_clients: int, num_corrupted: Array | int) -> Array:
    """Who is corrupted, [N] bool: the first `num_corrupted` of a random permutation of the clients.

    So under one key a larger fraction corrupts the clients of a smaller one and some more.
    """
    order = jax.random.permutation(key, num_clients)
    return jnp.zeros(num_clients, bool).at[order].set(jnp.arange(num_clients) < num_corrupted)


def owners(data: ClientData) -> Array:
    """The client [M] that each training example belongs to."""
    return jnp.searchsorted(data.offsets, jnp.arange(data.y.shape[0]), side="right") - 1


def none(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """Leaves every example as it is."""
    del key, corrupted
    return data


def shuffling(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """A corrupted client's labels are permuted among its examples."""
    owner = owners(data)
    order = jnp.lexsort((jax.random.uniform(key, owner.shape), owner))
    return data._replace(y=jnp.where(corrupted[owner], data.y[order], data.y))


def flipping(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """All labels of a corrupted client become one class, drawn for each client."""
    owner = owners(data)
    classes = jax.random.randint(key, corrupted.shape, 0, jnp.max(data.y) + 1, data.y.dtype)
    return data._replace(y=jnp.where(corrupted[owner], classes[owner], data.y))


def collusion(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """All labels of all corrupted clients become the same class."""
    the_class = jax.random.randint(key, (), 0, jnp.max(data.y) + 1, data.y.dtype)
    return data._replace(y=jnp.where(corrupted[owners(data)], the_class, data.y))


def noisy(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """Noise on corrupted clients' inputs: `noisy_images`, or `noisy_texts` where inputs are int8 characters."""
    owner, num_clients = owners(data), corrupted.size
    is_text = data.x.dtype == jnp.int8
    noise = noisy_texts(key, data.x) if is_text else noisy_images(key, data.x, owner, num_clients)
    where = corrupted[owner].reshape(-1, *[1] * (data.x.ndim - 1))
    return data._replace(x=jnp.where(where, noise, data.x))


def noisy_images(key: Array, x: Array, owner: Array, num_clients: int) -> Array:
    """Images [M, ...], in [0, 1], with N(0, 0.7^2) on each pixel, then scaled client by client to [0, 1].

    uint8 images stay uint8; float images are taken to lie in [0, 1].
    """
    is_uint8 = x.dtype == jnp.uint8
    noise = NOISE_STD * jax.random.normal(key, x.shape)
    pixels = ((x.astype(jnp.float32) / 255 if is_uint8 else x) + noise).reshape(x.shape[0], -1)
    low = jax.ops.segment_min(jnp.min(pixels, axis=1), owner, num_clients, indices_are_sorted=True)[owner]
    high = jax.ops.segment_max(jnp.max(pixels, axis=1), owner, num_clients, indices_are_sorted=True)[owner]
    scaled = ((pixels - low[:, None]) / (high - low)[:, None]).reshape(x.shape)
    return jnp.round(255 * scaled).astype(jnp.uint8) if is_uint8 else scaled


def noisy_texts(key: Array, x: Array) -> Array:
    """Texts [M, T]: in each, the characters at a random half of the positions are permuted among themselves."""

    def one(args: tuple[Array, Array]) -> Array:
        key, text = args
        half = jax.random.permutation(key, text.shape[0])[: text.shape[0] // 2]
        return text.at[jnp.sort(half)].set(text[half])

    return jax.lax.map(one, (jax.random.split(key, x.shape[0]), x), batch_size=4096)


def shift(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """All float inputs of a corrupted client are moved by one vector, drawn for each client.

    Its elements are normal, with twice the standard deviation of the inputs (the paper's introductory example).
    """
    moves = SHIFT * jnp.std(data.x) * jax.random.normal(key, (corrupted.size, *data.x.shape[1:]))
    moves = jnp.where(corrupted.reshape(-1, *[1] * (data.x.ndim - 1)), moves, 0)
    return data._replace(x=(data.x + moves[owners(data)]).astype(data.x.dtype))


def exclude(key: Array, data: ClientData, corrupted: Array) -> ClientData:
    """Corrupted clients are out of the game: training with the benign clients only."""
    del key
    return data._replace(counts=jnp.where(corrupted, 0, data.counts))


Corruption = Callable[[Array, ClientData, Array], ClientData]

CORRUPTIONS: dict[str, Corruption] = {
    "none": none,
    "shuffling": shuffling,
    "flipping": flipping,
    "noisy": noisy,
    "shift": shift,
    "collusion": collusion,
    "exclude": exclude,
}

# What of the data differs from run to run; everything else is shared by all runs of a program.
CHANGES: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "shuffling": frozenset({"y"}),
    "flipping": frozenset({"y"}),
    "noisy": frozenset({"x"}),
    "shift": frozenset({"x"}),
    "collusion": frozenset({"y"}),
    "exclude": frozenset({"counts"}),
}


def corrupt(
    corruption: Corruption,
    key: Array,
    data: ClientData,
    num_corrupted: Array | int,
    client_ids: Sequence[int] = (),
) -> ClientData:
    """`data` after `corruption` of `num_corrupted` clients drawn from `key`, or of exactly `client_ids` if given.

    Marks them in the result's `corrupted`.
    """
    data = jax.tree.map(jnp.asarray, data)
    clients_key, data_key = jax.random.split(key)
    num_clients = data.counts.shape[0]
    if client_ids:
        corrupted = jnp.zeros(num_clients, bool).at[jnp.asarray(client_ids)].set(True)
    else:
        corrupted = choose_clients(clients_key, num_clients, num_corrupted)
    return corruption(data_key, data, corrupted)._replace(corrupted=corrupted)
