"""Data sets in memory: `fedsim.from_arrays` without test data, and `fedsim.load(..., data=...)`."""

from dataclasses import replace

import numpy as np
import pytest

import fedsim
from fedsim.cli.main import main
from fedsim.engine import make_plan
from fedsim.engine.data import load_dataset
from fedsim.engine.environment import dataset_digest
from fedsim.errors import ConfigError, DataError, RunFolderError

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=200)
X = (RNG.normal(size=(200, 4)) + 2 * np.eye(3, 4)[Y]).astype(np.float32)
IDS = np.asarray([f"site {i}" for i in RNG.integers(6, size=200)])
TABLES = {"mlp": {"hidden_sizes": [4]}, "server": {"cohort_size": 3, "num_rounds": 2, "eval_every": 1}}


def rows_of(x: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in np.asarray(x)}


def test_a_share_of_each_client_is_held_out():
    dataset = fedsim.from_arrays(X, Y, IDS, test_fraction=0.25, seed=3)
    sizes = np.unique(IDS, return_counts=True)[1]
    np.testing.assert_array_equal(dataset.train.num_examples, [3 * size // 4 for size in sizes])
    np.testing.assert_array_equal(np.bincount(dataset.test_clients), [size - 3 * size // 4 for size in sizes])
    assert rows_of(dataset.train.x) | rows_of(dataset.x_test) == rows_of(X)
    owners = {x.tobytes(): owner for x, owner in zip(X, np.unique(IDS, return_inverse=True)[1], strict=True)}
    assert [owners[x.tobytes()] for x in dataset.x_test] == dataset.test_clients.tolist()
    same, other = (fedsim.from_arrays(X, Y, IDS, test_fraction=0.25, seed=seed) for seed in (3, 4))
    assert np.array_equal(dataset.x_test, same.x_test)
    assert not np.array_equal(dataset.x_test, other.x_test)


@pytest.fixture(scope="module")
def dataset():
    return fedsim.from_arrays(X, Y, IDS)


@pytest.fixture(scope="module")
def result(dataset, tmp_path_factory):
    out = tmp_path_factory.mktemp("memory") / "out"
    return fedsim.run(fedsim.load(TABLES, data=dataset), out=out, progress=False)


def test_a_file_with_the_same_arrays_is_the_same_data_set(dataset, result, tmp_path):
    """Clients of the data set, with their test examples; the file is split by data.seed in the same way."""
    np.savez(tmp_path / "mine.npz", x=X, y=Y, client_ids=IDS)
    tables = TABLES | {"arrays": {"path": str(tmp_path / "mine.npz")}}
    (config,) = fedsim.load(tables, data__name="arrays", data__partition="natural").runs()
    of_file = load_dataset(config)
    assert "20 % of each client's examples become test examples" in of_file.notes[0]
    assert dataset_digest(of_file) == dataset_digest(dataset)
    assert result.rounds["accuracy_p50"].null_count() == 0


def test_a_folder_resumes_with_equal_data_only(dataset, result):
    resume = lambda data: fedsim.run(fedsim.load(TABLES, data=data), out=result.path, progress=False)
    assert resume(fedsim.from_arrays(X, Y, IDS)).rounds.equals(result.rounds)
    changed = X.copy()
    changed[7, 2] += 1
    for other in (
        fedsim.from_arrays(changed, Y, IDS),
        fedsim.from_arrays(X, Y, IDS, num_classes=4),
        fedsim.from_arrays(X, Y, IDS, seed=1),
    ):
        with pytest.raises(RunFolderError, match="the data set has changed since its runs were computed"):
            resume(other)


def test_the_command_line_says_where_the_data_were(result, capsys):
    (config,) = (result.path / "configs").iterdir()
    assert main(["run", str(config), "--out", str(result.path)]) == 2
    error = capsys.readouterr().err
    assert "arrays.path" in error
    assert "fedsim.load(..., data=dataset)" in error


def test_a_partition_divides_the_examples_anew(dataset):
    for data, overrides, num_clients in (
        (dataset, {"data__partition": "dirichlet", "data__num_clients": 4}, 4),
        (fedsim.from_arrays(X, Y), {"data__num_clients": 8}, 8),
    ):
        plan = make_plan(fedsim.load(TABLES, data=data, **overrides))
        (planned,) = plan.datasets.values()
        assert planned.num_clients == num_clients
        assert rows_of(planned.train.x) == rows_of(data.train.x)


def test_clients_that_are_numbered_from_0_are_known_by_their_numbers():
    """In a sample, too; a partition that does not use them is noted."""
    data = fedsim.from_arrays(X, Y, np.arange(len(Y)) % 5, X, Y)
    assert data.client_names == ()
    plan = make_plan(fedsim.load(TABLES, data=data, data__sample_clients=2, server__cohort_size=2))
    (sampled,) = plan.datasets.values()
    for client, name in enumerate(sampled.client_names):
        start = sampled.train.offsets[client]
        own = sampled.train.x[start : start + sampled.train.num_examples[client]]
        assert rows_of(own) == rows_of(X[int(name) :: 5])
    assert set(sampled.client_names) != {"0", "1"}
    (divided,) = make_plan(fedsim.load(TABLES, data=data, data__partition="iid")).datasets.values()
    assert any("its clients are not used" in note for note in divided.notes)


def test_data_win_over_the_configuration(dataset, tmp_path):
    (tmp_path / "digits.toml").write_text(
        'data = {name = "digits", partition = "dirichlet"}\nsweep = [{seed = [0, 1]}]'
    )
    with pytest.warns(UserWarning, match=r"data\.partition of the configuration is not used"):
        (run, _) = fedsim.load(tmp_path / "digits.toml", data=dataset).runs()
    assert (run.data.name, run.data.partition) == ("arrays", "natural")
    (run,) = fedsim.load({"data": {"max_examples": 5}}, data=dataset).runs()  # which other partitions refuse
    assert (run.data.partition, run.data.max_examples) == ("natural", 5)
    with pytest.raises(ConfigError, match=r"data\.name: must be left out with a data set in memory, got 'digits'"):
        fedsim.load(TABLES, data=dataset, data__name="digits")
    with pytest.raises(ConfigError, match=r"data: must be a data set of fedsim\.from_arrays .* got ndarray"):
        fedsim.load(TABLES, data=X)
    root = replace(dataset, root=fedsim.Examples(dataset.x_test, dataset.y_test))
    with pytest.raises(ConfigError, match=r"data: must have no root examples; data__root_examples holds them out"):
        fedsim.load(TABLES, data=root)
    corrupted = replace(dataset, train=dataset.train._replace(corrupted=np.ones_like(dataset.train.corrupted)))
    with pytest.raises(ConfigError, match=r"data: must have no corrupted clients; corruption__clients chooses them"):
        fedsim.load(TABLES, data=corrupted)


def test_files_without_a_test_set_are_split_by_the_configuration(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    tables = TABLES | {"data": {"name": "arrays", "num_clients": 4}, "arrays": {"path": str(tmp_path / "mine.npz")}}
    plan = make_plan(fedsim.load(tables, data__test_fraction=0.5))
    (planned,) = plan.datasets.values()
    assert (len(planned.train.y), len(planned.y_test)) == (100, 100)
    assert rows_of(planned.train.x) | rows_of(planned.x_test) == rows_of(X)
    note = "data.test_fraction: mine comes without test examples, so 20 % of the examples become test examples"
    assert note not in plan.notes
    assert note in make_plan(fedsim.load(tables)).notes
    with pytest.raises(DataError, match=r"data\.test_fraction: must be left out for digits"):
        make_plan(fedsim.load(TABLES, data__test_fraction=0.5))


def test_positions_that_are_names_of_other_clients_are_noted():
    numbered = fedsim.from_arrays(X, Y, RNG.integers(1, 7, size=200), test_fraction=0.25)
    tables = TABLES | {"corruption": {"kind": "shuffling"}}
    notes = lambda *clients: make_plan(fedsim.load(tables, data=numbered, corruption__clients=clients)).notes
    assert notes("1", 2, 3) == (
        'corruption.clients: 2 is the position of client "3"; for the client of the name 2, put it in quotes',
    )
    assert notes(0, "6") == ()


def test_changed_data_are_checked():
    dataset = fedsim.from_arrays(np.eye(20), np.arange(20) % 2, np.repeat(np.arange(4), 5))
    broken = replace(dataset, train=dataset.train._replace(x=np.full_like(dataset.train.x, np.nan)))
    experiment = fedsim.load({"server": {"cohort_size": 2}}, data=broken)
    with pytest.raises(DataError, match="training inputs must be finite"):
        make_plan(experiment)
