"""Sampling of examples, and LEAF's sampling and splitting of natural clients.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fedsim.config.sections import DataConfig
from fedsim.datasets.portions import empty, floor_fraction, portions
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.errors import DataError

DEFAULT_TEST_FRACTION = 0.2
NO_CLIENT = -1  # the client of a test example that belongs to none

Pools: TypeAlias = dict[int, np.ndarray]
"""Positions of each client's examples; positions of test examples follow those of training examples."""


def subsample(raw: RawDataset, config: DataConfig, rng: np.random.Generator) -> RawDataset:
    """`raw` with `num_train` and `num_test` of its examples, drawn at random before they are partitioned.

    A data set without a test set is split first, see `split_test`. Raises `DataError` if there are fewer examples, or
    `test_fraction` is given for a data set with a test set.
    """
    has_test = len(raw.y_test) > 0
    if has_test and config.test_fraction is not None:
        raise DataError(
            f"data.test_fraction: must be left out for {raw.name}, which has test examples, unless data.partition is "
            f'"natural", got {config.test_fraction}'
        )
    if has_test and config.num_train is None and config.num_test is None:
        return raw
    raw = raw if has_test else split_test(raw, config.test_fraction, rng)
    name = raw.name if config.long_tail == 1 else f"{raw.name} that data.long_tail = {config.long_tail:g} keeps"
    train = draw_examples(name, "num_train", config.num_train, len(raw.y), rng)
    test = draw_examples(name, "num_test", config.num_test, len(raw.y_test), rng)
    return select_examples(raw, train, test)


def split_test(raw: RawDataset, fraction: float | None, rng: np.random.Generator) -> RawDataset:
    """`raw`, which has no test set, with a `fraction` of its examples (default: 0.2) as one, drawn at random.

    They are drawn from each natural client, if there are any, as by `sample_clients`.
    """
    is_natural = raw.client_ids is not None
    client_ids = raw.client_ids if is_natural else np.zeros(len(raw.y), np.int32)
    raw = replace(raw, client_ids=client_ids, test_client_ids=None)
    split = sample_clients(raw, DataConfig(test_fraction=fraction), rng)
    return split if is_natural else replace(split, client_ids=None, test_client_ids=None)


def draw_examples(
    name: str, key: str, num_examples: int | None, available: int, rng: np.random.Generator
) -> np.ndarray | slice:
    """The positions, in their order, of `num_examples` of the `available` examples; all for None."""
    if num_examples is None:
        return slice(None)
    if num_examples > available:
        raise DataError(f"data.{key}: must be at most the {available} examples of {name}, got {num_examples}")
    return np.sort(rng.permutation(available)[:num_examples])


def division_notes(raw: RawDataset, config: DataConfig) -> Iterator[str]:
    """Remarks if test examples are split off by default, and if the data's own clients are divided in another way."""
    if config.test_fraction is None and not len(raw.y_test):
        examples = "the examples" if raw.client_ids is None else "each client's examples"
        share = f"{100 * DEFAULT_TEST_FRACTION:g} % of {examples} become test examples"
        if num_overlapping(raw):
            share = f"the last {share}, without windows that reach into both parts"
        yield f"data.test_fraction: {raw.name} comes without test examples, so {share}"
    if config.partition != "natural" and raw.client_names is not None and len(raw.client_names) > 1:
        yield f'{raw.name}: its clients are not used; data.partition = "natural" uses them, got "{config.partition}"'


def sample_clients(raw: RawDataset, config: DataConfig, rng: np.random.Generator) -> RawDataset:
    """`raw` with the natural clients and examples that `config` selects; clients and examples keep their order.

    Each client's examples are split again if `test_fraction` is given or there is no test set; clients that are too
    small for that are left out first. Whole clients are drawn: `sample_clients` of them, or until they have
    `sample_fraction` of the examples, the last one truncated. `max_examples` applies last. Test examples that belong to
    no client stay. Raises `DataError` if nothing is left, or there are fewer clients.
    """
    needs_split = config.test_fraction is not None or len(raw.y_test) == 0
    is_sampled = config.sample_clients is not None or config.sample_fraction < 1
    is_capped = config.max_examples is not None or config.max_test_examples is not None
    if raw.client_ids is None or not (needs_split or is_sampled or is_capped):
        return raw
    if raw.test_client_ids is None and len(raw.y_test) and needs_split:
        raise DataError(
            f"data.test_fraction: must be left out for {raw.name}, whose test examples belong to no clients, got "
            f"{config.test_fraction}"
        )
    test_ids = raw.test_client_ids
    if test_ids is None:
        test_ids = np.full(len(raw.y_test), NO_CLIENT, np.int32)
    client_ids = np.concatenate([raw.client_ids, test_ids]) if len(test_ids) else raw.client_ids
    selected, selected_test = _select(raw, client_ids, needs_split, config, rng)
    if len(selected) == 0 or len(selected_test) == 0:
        remedy = "give test examples, or clients with more examples"
        remedy = "raise data.sample_fraction" if config.sample_fraction < 1 else remedy
        raise DataError(f"{raw.name}: no client is left with training and test examples; {remedy}")
    notes = raw.notes
    num_clients, num_left = (len(np.unique(ids)) for ids in (client_ids, client_ids[selected]))
    if needs_split and num_left < num_clients and not is_sampled:
        count = f"{num_clients - num_left} of {num_clients} clients"
        notes += (f"{raw.name}: {count} are left out: they have too few examples for training and test examples",)
    return replace(
        raw,
        x=_take(raw.x, raw.x_test, selected),
        y=_take(raw.y, raw.y_test, selected),
        client_ids=client_ids[selected],
        x_test=_take(raw.x, raw.x_test, selected_test),
        y_test=_take(raw.y, raw.y_test, selected_test),
        test_client_ids=None if np.any(client_ids[selected_test] == NO_CLIENT) else client_ids[selected_test],
        notes=notes,
    )


def _select(
    raw: RawDataset, client_ids: np.ndarray, needs_split: bool, config: DataConfig, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the selected training and test examples, client by client."""
    if needs_split:
        train, test = _split(raw, client_ids, config, rng)
    else:
        num_train = len(raw.y)
        train = _draw_clients(raw.name, make_pools(client_ids[:num_train]), config, rng)
        test = make_pools(client_ids[num_train:], num_train)
        if config.sample_clients is not None or config.sample_fraction < 1:
            test = {client: pool for client, pool in test.items() if client in train or client == NO_CLIENT}
    return _concatenate(train, config.max_examples), _concatenate(test, config.max_test_examples)


def make_pools(client_ids: np.ndarray, first: int = 0) -> Pools:
    """The positions of each client's examples, counted from `first`."""
    if len(client_ids) == 0:
        return {}
    order = np.argsort(client_ids, kind="stable")
    clients, starts = np.unique(client_ids[order], return_index=True)
    return dict(zip(clients.tolist(), np.split(order + first, starts[1:]), strict=True))


def _draw_clients(name: str, pools: Pools, config: DataConfig, rng: np.random.Generator) -> Pools:
    drawn = rng.permutation(list(pools)).tolist()
    if config.sample_clients is not None:
        if config.sample_clients > len(drawn):
            raise DataError(
                f"data.sample_clients: must be at most the {len(drawn)} clients of {name}, got {config.sample_clients}"
            )
        drawn = drawn[: config.sample_clients]
    budget = floor_fraction(sum(len(pools[client]) for client in drawn), config.sample_fraction)
    selected = {}
    for client in drawn:
        selected[client] = pools[client][:budget]
        budget -= len(selected[client])
        if budget == 0:
            break
    return selected


def _split(
    raw: RawDataset, client_ids: np.ndarray, config: DataConfig, rng: np.random.Generator
) -> tuple[Pools, Pools]:
    """Training and test pools of the drawn clients, split as in LEAF.

    At random; but windows of text by time, without the windows that overlap both parts.
    """
    gap = num_overlapping(raw)
    num_train = lambda pool: num_before(len(pool), config.test_fraction or DEFAULT_TEST_FRACTION)
    is_large_enough = lambda pool: len(pool) > num_train(pool) + gap
    pools = {client: pool for client, pool in make_pools(client_ids).items() if is_large_enough(pool)}
    train, test = {}, {}
    for client, pool in sorted(_draw_clients(raw.name, pools, config, rng).items()):
        if is_large_enough(pool):  # the last client may be truncated
            order = pool if gap else rng.permutation(pool)
            parts = order[: num_train(pool)], order[num_train(pool) + gap :]
            train[client], test[client] = parts if gap else map(np.sort, parts)
    return train, test


def num_before(size: int, fraction: float) -> int:
    """How many of `size` examples are left if this fraction is held out, at least one."""
    return max(1, floor_fraction(size, 1 - fraction))


def num_overlapping(raw: RawDataset) -> int:
    """How many of the next windows of a text share characters with a window; 0 for other examples."""
    return int(raw.x.shape[1]) - 1 if raw.inputs == "text" and raw.are_windows else 0


def _concatenate(pools: Pools, max_examples: int | None) -> np.ndarray:
    """All positions, client by client, at most `max_examples` of each, evenly spaced."""
    parts = [np.zeros(0, np.int32)]
    for client, pool in sorted(pools.items()):
        parts.append(pool if client == NO_CLIENT else evenly_spaced(pool, max_examples))
    return np.concatenate(parts)


def evenly_spaced(pool: np.ndarray, number: int | None) -> np.ndarray:
    """At most `number` of the positions in `pool`; all for None."""
    return pool if number is None or len(pool) <= number else pool[np.arange(number) * len(pool) // number]


def _take(train: np.ndarray, test: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The elements at `positions` of `train` followed by `test`, without concatenating them."""
    result = empty((len(positions), *train.shape[1:]), train.dtype)
    for portion in portions(result):
        is_test, part = positions[portion] >= len(train), result[portion]
        part[~is_test] = train[positions[portion][~is_test]]
        part[is_test] = test[positions[portion][is_test] - len(train)]
    return result
