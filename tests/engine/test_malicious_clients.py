"""Malicious clients that are a set of their own, apart from those with corrupted data."""

from functools import partial
from itertools import pairwise

import jax
import numpy as np
import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.core.corrupt import choose_clients
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError

TABLES = {
    "data": {"num_clients": 10, "num_train": 100, "num_test": 50},
    "mlp": {"hidden_sizes": [4]},
    "client": {"batch_size": 10},
    "server": {"cohort_size": 10, "num_rounds": 4, "eval_every": 2, "aggregator": "fedavg"},
    "corruption": {"kind": "exclude", "fraction": 0.3},
    "attack": {"kind": "inf", "fraction": 0.2},
    "engine": {"client_width": 10},
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two runs: a fraction of malicious clients; malicious clients by id, whose attack starts later."""
    by_id = {"corruption": {"start_round": [3]}, "attack": {"clients": [[1, 7]]}}
    plan = make_plan(fedsim.load(TABLES | {"sweep": [{"seed": [0]}, by_id]}))
    folder = run_plan(plan, tmp_path_factory.mktemp("malicious"))
    return [{kind: folder.read(kind, [run]).to_pandas() for kind in ("rounds", "clients")} for run in folder.runs()]


def test_sets_are_apart_and_only_malicious_clients_attack(tables):
    clients = tables[0]["clients"]
    for _, cohort in clients.groupby("round"):
        assert cohort["corrupted"].sum() == 3
        assert cohort["malicious"].sum() == 2
        assert not (cohort["corrupted"] & cohort["malicious"]).any()
    took_part = clients["weight"].notna()
    np.testing.assert_array_equal(took_part, ~(clients["corrupted"] | clients["malicious"]))  # excluded, or inf


def test_their_share_of_the_weight_is_recorded_apart(tables):
    later = tables[1]["rounds"].set_index("round")
    assert later.loc[2, ["corrupted_weight", "malicious_weight"]].tolist() == pytest.approx([0.3, 0.2])
    assert later.loc[4, ["corrupted_weight", "malicious_weight"]].tolist() == [0, 0]
    clients = tables[1]["clients"].set_index("round")
    assert clients.loc[2, "weight"].notna().all()
    assert (clients.loc[3, "weight"].isna() == (clients.loc[3, "corrupted"] | clients.loc[3, "malicious"])).all()
    assert set(clients["client_id"][clients["malicious"]]) == {1, 7}


def test_more_malicious_clients_include_the_fewer_and_are_not_corrupted():
    key = jax.random.key(3)
    sets = [np.asarray(choose_clients(key, 20, number, from_end=True)) for number in range(15)]
    for fewer, more in pairwise(sets):
        assert (more >= fewer).all()
        assert more.sum() == fewer.sum() + 1
    assert not (sets[14] & np.asarray(choose_clients(key, 20, 6))).any()


@pytest.mark.parametrize("seed", range(5))
def test_drawn_clients_are_apart_from_listed_ones(seed):
    """Whichever set is listed, the other one has none of its clients, as long as there are enough."""
    y = np.zeros(20, np.int32)
    data = fedsim.from_arrays(np.zeros((20, 2), np.float32), y, np.arange(20), np.zeros((1, 2)), y[:1], num_classes=2)
    corrupt = partial(fedsim.corrupt, fedsim.corruption.flipping(), jax.random.key(seed), data.train, data.spec)
    listed = np.asarray([0, 1, 2, 3, 4, 5])  # an array, as from np.flatnonzero
    for number in (6, 14, 20):
        drawn = corrupt(0, client_ids=listed, num_malicious=number)
        assert np.flatnonzero(drawn.corrupted).tolist() == listed.tolist()
        assert int(drawn.malicious.sum()) == number
        assert int((drawn.malicious & drawn.corrupted).sum()) == max(0, number - 14)
        drawn = corrupt(number, malicious_ids=listed)
        assert np.flatnonzero(drawn.malicious).tolist() == listed.tolist()
        assert int(drawn.corrupted.sum()) == number
        assert int((drawn.malicious & drawn.corrupted).sum()) == max(0, number - 14)
    assert np.flatnonzero(corrupt(2, client_ids=np.asarray([0])).corrupted).tolist() == [0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("attack.fraction = 0.01", "attack.fraction: 0.01 rounds to 0 of 20 clients; use at least 0.05"),
        ("attack.fraction = 0.01\ndata.num_clients = 30", "rounds to 0 of 30 clients; use at least 0.0334"),
        ("attack.clients = [20]", "attack.clients: must be numbers from 0 to 19, or names in quotes, got 20"),
        (
            "server.weighting = 'signguard'\nsignguard.lower = 5.0\nsignguard.upper = 3.0",
            "signguard: lower: must be at most",
        ),
        (
            "corruption = {kind = 'exclude', clients = [0, 1]}\nserver.cohort_size = 2\ndata.num_clients = 2",
            "corruption.clients: must leave clients that are not excluded, got all; leave some out",
        ),
        ("server.weighting = 'zeno'", "data.root_examples: must be at least 1 for zeno"),
    ],
)
def test_refuses(text, match):
    fraction = "" if "attack.fraction" in text else "attack.fraction = 0.5\n"
    with pytest.raises(ConfigError, match=match):
        make_plan(parse(f"attack.kind = 'ipm'\n{fraction}{text}"))
