"""Which of the natural clients, and which of their examples, take part: LEAF's sampling and splitting.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097
"""

from dataclasses import replace

import numpy as np

from fedsim.config import DataConfig
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

DEFAULT_TEST_FRACTION = 0.2


def sample(raw: RawDataset, config: DataConfig, rng: np.random.Generator) -> RawDataset:
    """`raw` with the clients and examples that `config` asks for; clients and examples keep their order.

    Each client's examples are split anew if `test_fraction` asks for it, or if there is no test set; clients too small
    for that are left out first. Clients are drawn whole: `sample_clients` of them, or as many as have `sample_fraction`
    of all examples, the last one cut short. What a client has is capped last.
    """
    if raw.client_ids is None or raw.test_client_ids is None:
        return raw
    new_split = config.test_fraction is not None or len(raw.y_test) == 0
    if not new_split and config == replace(config, **{key: getattr(DataConfig(), key) for key in KEYS}):
        return raw
    num_train = len(raw.y)  # positions from here on are test examples
    owner = np.concatenate([raw.client_ids, raw.test_client_ids])
    order = np.argsort(owner, kind="stable")
    clients, starts = np.unique(owner[order], return_index=True)
    pools = dict(zip(clients.tolist(), np.split(order, starts[1:]), strict=True))
    gap = raw.x.shape[1] - 1 if raw.x.dtype == np.int8 else 0  # characters that neighbouring windows share
    test_fraction = config.test_fraction or DEFAULT_TEST_FRACTION
    if new_split:
        pools = {i: pool for i, pool in pools.items() if len(pool) > _num_train(len(pool), test_fraction) + gap}
    chosen_train, chosen_test = [], []
    for _, pool in sorted(_draw(raw.name, pools, config, rng).items()):
        if new_split:
            train, test = _split(pool, test_fraction, gap, rng)
        else:
            train, test = pool[pool < num_train], pool[pool >= num_train]
        if len(train) and (len(test) or not new_split):
            chosen_train.append(_thin(train, config.max_examples))
            chosen_test.append(_thin(test, config.max_test_examples))
    if not chosen_train:
        raise DataError(f"{raw.name}: no client is left; raise data.sample_fraction or lower data.test_fraction")
    train, test = np.concatenate(chosen_train), np.concatenate(chosen_test)
    take = lambda a, b, positions: _take(np.asarray(a), np.asarray(b), positions)
    return replace(
        raw,
        x=take(raw.x, raw.x_test, train),
        y=take(raw.y, raw.y_test, train),
        client_ids=owner[train],
        x_test=take(raw.x, raw.x_test, test),
        y_test=take(raw.y, raw.y_test, test),
        test_client_ids=owner[test],
    )


KEYS = ("sample_fraction", "sample_clients", "test_fraction", "max_examples", "max_test_examples")


def _draw(
    name: str, pools: dict[int, np.ndarray], config: DataConfig, rng: np.random.Generator
) -> dict[int, np.ndarray]:
    """The positions of each client that takes part."""
    drawn = rng.permutation(list(pools)).tolist()
    if config.sample_clients is not None:
        if config.sample_clients > len(drawn):
            raise DataError(f"data.sample_clients: {name} has only {len(drawn)} clients; ask for that many or fewer")
        drawn = drawn[: config.sample_clients]
    budget = int(config.sample_fraction * sum(len(pools[client]) for client in drawn))
    chosen = {}
    for client in drawn:
        chosen[client] = pools[client][:budget]
        budget -= len(chosen[client])
        if budget == 0:
            break
    return chosen


def _num_train(num_examples: int, test_fraction: float) -> int:
    """How many of a client's examples are for training: at least one."""
    return max(1, int((1 - test_fraction) * num_examples))


def _split(pool: np.ndarray, test_fraction: float, gap: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Training and test positions of one client, as LEAF splits them.

    At random; but windows of text (`gap` > 0) in time, without the `gap` windows that overlap both parts.
    """
    num_train = _num_train(len(pool), test_fraction)
    if gap:
        return pool[:num_train], pool[num_train + gap :]
    shuffled = rng.permutation(pool)
    return np.sort(shuffled[:num_train]), np.sort(shuffled[num_train:])


def _thin(positions: np.ndarray, most: int | None) -> np.ndarray:
    """At most `most` of `positions`, evenly spaced."""
    if most is None or len(positions) <= most:
        return positions
    return positions[np.arange(most) * len(positions) // most]


def _take(train: np.ndarray, test: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The elements at `positions` of `train` with `test` after it, without joining them."""
    result = np.empty((len(positions), *train.shape[1:]), train.dtype)
    is_test = positions >= len(train)
    result[~is_test] = train[positions[~is_test]]
    result[is_test] = test[positions[is_test] - len(train)]
    return result
