"""Validation data, which no client trains on, and rounds with more corrupted clients than a rule assumes."""

import re
from dataclasses import replace

import numpy as np
import pytest

import fedsim
from fedsim.config.clients import assumed_f
from fedsim.config.sections import DataConfig
from fedsim.config.toml import parse
from fedsim.datasets.subsets import hold_out
from fedsim.engine import make_plan, run_plan
from fedsim.engine.data import load_dataset
from fedsim.engine.environment import dataset_digest
from fedsim.errors import DataError
from fedsim.forecast.estimate import FORWARD_SHARE, example_work, group_bytes
from tests.datasets.build import build_dataset, make_raw

TEXT = """
data = {num_clients = 8, num_train = 300, validation_fraction = 0.2}
mlp.hidden_sizes = [4]
client.dropout_rate = 0.2
server = {aggregator = "krum", pre_aggregators = ["nnm"], cohort_size = 6, num_rounds = 4, eval_every = 2}
record.models = true
[[sweep]]
corruption.kind = "flipping"
corruption.fraction = 0.5
krum.num_byzantine = [1, 2]
nnm.num_byzantine = 2
[[sweep]]
server.aggregator = "fedavg"
server.pre_aggregators = []
"""


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(TEXT))


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    return run_plan(plan, tmp_path_factory.mktemp("runs") / "validated")


def rows_of(x, y):
    return sorted(map(tuple, np.column_stack([np.asarray(x).reshape(len(x), -1), y]).tolist()))


def test_validation_data_are_no_clients_and_clean(plan):
    (dataset,) = plan.datasets.values()
    config = plan.runs[0]
    load = lambda **keys: load_dataset(replace(config, data=replace(config.data, **keys)))
    plain = load(validation_fraction=0.0)
    assert plain.validation is None
    assert len(dataset.validation.y) == 60
    together = np.concatenate([dataset.train.x, dataset.validation.x])
    labels = np.concatenate([dataset.train.y, dataset.validation.y])
    assert rows_of(together, labels) == rows_of(plain.train.x, plain.train.y)
    np.testing.assert_array_equal(dataset.x_test, plain.x_test)
    with_root, root_alone = load(root_examples=50), load(root_examples=50, validation_fraction=0.0)
    np.testing.assert_array_equal(with_root.root.x, root_alone.root.x)  # whatever is kept beside it
    assert dataset_digest(dataset) != dataset_digest(replace(dataset, validation=None))


def measure(model, images, labels):
    """The accuracy and the mean loss of a stored MLP with one hidden layer, by NumPy."""
    x = np.asarray(images, np.float64).reshape(len(labels), -1) / 255
    hidden = np.maximum(x @ model["Dense_0/kernel"] + model["Dense_0/bias"], 0)
    logits = hidden @ model["Dense_1/kernel"] + model["Dense_1/bias"]
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
    return np.mean(logits.argmax(axis=1) == labels), losses.mean()


def test_models_are_measured_on_them(plan, folder):
    (dataset,) = plan.datasets.values()
    last = {row["run"]: row for row in folder.read("rounds").to_dicts() if row["round"] == 4}
    for run, row in last.items():
        accuracy, loss = measure(folder.runs()[run].read_model(), dataset.validation.x, dataset.validation.y)
        assert row["validation_accuracy"] == pytest.approx(accuracy)
        assert row["validation_loss"] == pytest.approx(loss, rel=1e-5)


def test_estimates_count_them(plan):
    (dataset,), group = plan.datasets.values(), plan.groups[0]
    configs = group.configs
    without = replace(dataset, validation=None)
    more = group_bytes(configs, dataset, group.layout) - group_bytes(configs, without, group.layout)
    assert more == dataset.validation.x.nbytes + dataset.validation.y.nbytes
    evaluations = 3
    (_, validated), (_, others) = (example_work(configs[0], data, group.layout) for data in (dataset, without))
    assert validated - others == pytest.approx(FORWARD_SHARE * 60 * evaluations)


def test_natural_clients_keep_an_example_each():
    owners = np.arange(40) % 10
    raw = make_raw(owners, client_ids=owners)
    for seed in range(20):
        rest, kept = hold_out(raw, "validation_fraction", 0.7, np.random.default_rng(seed), is_natural=True)
        assert len(kept.y) == 28
        assert set(rest.client_ids) == set(raw.client_ids)
        assert rows_of(np.concatenate([rest.x, kept.x]), np.concatenate([rest.y, kept.y])) == rows_of(raw.x, raw.y)
        rest, _ = hold_out(raw, "root_examples", 30, np.random.default_rng(seed), is_natural=True)
        assert set(rest.client_ids) == set(raw.client_ids)
    with pytest.raises(DataError, match=r"^data.root_examples: must be at most 30 .*got 31"):
        hold_out(raw, "root_examples", 31, np.random.default_rng(0), is_natural=True)
    with pytest.raises(DataError, match=r"^data.validation_fraction: .*1 to 30 .*got 0.9"):
        hold_out(raw, "validation_fraction", 0.9, np.random.default_rng(0), is_natural=True)
    with pytest.raises(DataError, match=r"^data.validation_fraction: .*got 0.01"):
        hold_out(raw, "validation_fraction", 0.01, np.random.default_rng(0), is_natural=False)


def test_validation_windows_share_no_character_with_training():
    """Of windows of 5 numbered characters; a text that is too short for both parts stays whole."""
    sizes, window = np.asarray([40, 7, 60]), np.arange(5)
    owners = np.repeat(np.arange(3), sizes)
    starts = np.arange(len(owners)) + 10 * owners
    raw = make_raw(owners, starts[:, None] + window, "text", client_ids=owners)
    rest, kept = hold_out(raw, "validation_fraction", 0.2, np.random.default_rng(0), is_natural=True)
    assert not np.isin(kept.x, rest.x).any()
    assert np.bincount(rest.client_ids).tolist() == [32, 7, 48]
    assert np.bincount(kept.y).tolist() == [4, 0, 8]
    _, few = hold_out(raw, "validation_fraction", 0.01, np.random.default_rng(0), is_natural=True)
    np.testing.assert_array_equal(few.x[:, 0], starts[[39, 46, 106]])  # the last of each
    rest, kept = hold_out(raw, "validation_fraction", 0.2, None, True, DataConfig(max_examples=10))
    assert not np.isin(kept.x, rest.x).any()
    assert (np.bincount(rest.client_ids).tolist(), np.bincount(kept.y).tolist()) == ([8, 7, 8], [2, 0, 2])
    drawn, kept = hold_out(raw, "validation_fraction", 0.2, np.random.default_rng(0), True, DataConfig(num_train=20))
    assert (len(drawn.y), len(kept.y)) == (16, 4)
    assert not np.isin(kept.x, drawn.x).any()
    for number in (1, 3, 100):
        drawn, kept = hold_out(
            raw, "validation_fraction", 0.2, np.random.default_rng(0), True, DataConfig(num_train=number)
        )
        assert (len(drawn.y), len(kept.y)) == {1: (1, 1), 3: (2, 1), 100: (80, 12)}[number]
    with pytest.raises(DataError, match=r"^data\.num_train: must be at most the 107 examples of .*, got 108$"):
        hold_out(raw, "validation_fraction", 0.2, None, True, DataConfig(num_train=108))
    assert hold_out(raw, "validation_fraction", 0.4, None, True)[0].notes == ()
    (note,) = hold_out(raw, "validation_fraction", 0.11, None, True)[0].notes
    assert re.match(r".*: 4 of 99 windows are validation data, data.validation_fraction = 0.11: texts are short", note)
    _, whole = hold_out(replace(raw, are_windows=False), "validation_fraction", 0.2, np.random.default_rng(0), True)
    assert len(whole.y) == 21
    with pytest.raises(DataError, match=r"^data.validation_fraction: must be 0 for .* which are too short for it$"):
        hold_out(
            make_raw(owners, np.zeros((107, 108), int), "text"), "validation_fraction", 0.5, None, is_natural=False
        )


def test_root_windows_share_no_character_with_validation():
    x, owners = np.repeat(np.arange(8), 60)[:, None] * 80, np.repeat(np.arange(8), 60)
    windows = (x + np.tile(np.arange(60), 8)[:, None] + np.arange(5)).astype(np.int32)
    data = fedsim.from_arrays(windows, np.zeros(480, np.int32), owners, inputs="text", num_classes=700)
    tables = {"data": {"partition": "natural", "validation_fraction": 0.3, "root_examples": 100, "max_examples": 40}}
    (config,) = fedsim.load(tables, data=data, model__name="char_lstm", server__cohort_size=2).runs()
    dataset = load_dataset(config, data)
    assert len(dataset.root.y) == 100
    assert len(dataset.train.y) == 8 * 28 - 100
    assert len(dataset.validation.y) > 50
    assert not np.isin(dataset.root.x, dataset.validation.x).any()
    assert not np.isin(dataset.train.x, dataset.validation.x).any()


def test_rounds_with_more_corrupted_clients_than_f(plan, folder):
    clients = folder.read("clients").to_dicts()
    assert not any(client["malicious"] for client in clients)  # there is no attack
    for row in folder.read("rounds").to_dicts():
        config, t = plan.runs[row["run"]], row["round"]
        if t == 0 or config.server.aggregator == "fedavg":
            assert row["byzantine_excess"] is None
            continue
        above = []
        for round_ in (t - 1, t):
            answered = [
                c for c in clients if (c["run"], c["round"]) == (row["run"], round_) and c["weight"] is not None
            ]
            n = len(answered)
            f = min(dict(config.settings)["krum.num_byzantine"], n - 2, 2, (n - 1) // 2)
            above.append(sum(c["corrupted"] for c in answered) > f)
        assert row["byzantine_excess"] == np.mean(above)


def test_the_f_that_rules_reckon_with():
    n = np.arange(12)
    of = lambda text: assumed_f(parse(text).runs()[0], n)
    assert of('server.aggregator = "median"') is None
    np.testing.assert_array_equal(of('server.aggregator = "krum"'), np.maximum((n - 3) // 2, 0))
    np.testing.assert_array_equal(of('server.aggregator = "bulyan"'), np.maximum((n - 3) // 4, 0))
    configured = 'server.aggregator = "trimmed_mean"\ntrimmed_mean.num_byzantine = 4'
    np.testing.assert_array_equal(of(configured), [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4])
    static = 'server = {aggregator = "mda", cohort_size = 12}'  # f is that of 12 clients
    np.testing.assert_array_equal(of(static), [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4])


def test_root_and_validation_examples_are_drawn_from_streams_of_their_own():
    root = build_dataset("data = {num_train = 300, root_examples = 30}").root
    validation = build_dataset("data = {num_train = 300, validation_fraction = 0.1}").validation
    assert len(root.y) == len(validation.y) == 30
    assert not np.array_equal(root.x, validation.x)
