"""What is recorded of the test besides loss and accuracy: sums that a task names, and the accuracy of each class."""

import numpy as np
import pytest

import fedsim
from fedsim.engine import make_plan
from fedsim.errors import ConfigError

MODEL = """
import flax.linen as nn
import jax.numpy as jnp
import numpy as np

import fedsim


def named(spec):
    task = fedsim.classification(nn.Dense(spec.num_outputs), np.zeros(spec.shape, np.float32))

    def metrics(variables, x, y, mask):
        top_2 = jnp.any(jnp.argsort(task.outputs(variables, x), axis=1)[:, -2:] == y[:, None], axis=1)
        is_first = mask & (y == 0)
        named = {"top_2": (jnp.sum(mask & top_2), jnp.sum(mask)), "none": (0.0 * jnp.sum(mask),) * 2}
        named["top_2_of_first"] = jnp.sum(is_first & top_2), jnp.sum(is_first)
        return task.metrics(variables, x, y, mask)._replace(named=named)

    return task._replace(metrics=metrics)
"""


OTHERS = [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize("has_test_clients", [False, True])
def test_quantities_are_those_of_the_final_model(has_test_clients, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 4, 60)
    y[40:][y[40:] == 3] = 1  # no test example has the last class
    owners = np.arange(60) % 3
    test_clients = owners[40:] if has_test_clients else None
    data = fedsim.from_arrays(x[:40], y[:40], owners[:40], x[40:], y[40:], test_client_ids=test_clients)
    tables = {
        "data": {"partition": "natural"},
        "model": {"name": f"{tmp_path}/model.py:named"},
        "server": {"aggregator": "arfl", "cohort_size": 3, "num_rounds": 2, "eval_every": 2},
        "record": {"models": True, "classes": True},
    }
    result = fedsim.run(fedsim.load(tables, data=data, seed=fedsim.sweep([0, 1])), out=tmp_path / "run", progress=False)
    for run in (0, 1):
        model = result.model(run, data)
        logits, labels = np.asarray(model(data.x_test)), data.y_test
        top_2 = (np.argsort(logits, axis=1)[:, -2:] == labels[:, None]).any(axis=1)
        correct = logits.argmax(axis=1) == labels
        expected = {"top_2": top_2.mean(), "top_2_of_first": top_2[labels == 0].mean(), "none": None}
        expected |= {f"class_accuracy/{label}": correct[labels == label].mean() for label in range(3)}
        info = result.info
        rows = info.filter((info["run"] == run) & (info["round"] == 2))
        found = dict(zip(rows["name"], rows["value"], strict=True))
        assert found.keys() > expected.keys()  # the rule's own measurements are there, too
        assert found["class_accuracy/3"] is None
        for name, value in expected.items():
            assert found[name] == (None if value is None else pytest.approx(value)), name
    assert set(info.filter(info["round"] == 0)["name"]) == {*expected, "class_accuracy/3"}


def test_accuracy_of_the_clients_own_models(tmp_path):
    """With lam 0 client k's own model is trained on its examples alone, by as many epochs as it had rounds; the last
    test example is of a client that has no other."""
    rng = np.random.default_rng(0)
    x, y, owners = rng.normal(size=(90, 4)).astype(np.float32), rng.integers(0, 3, 90), np.arange(90) % 3
    test_clients = np.append(owners[60:89], 3)
    data = fedsim.from_arrays(x[:60], y[:60], owners[:60], x[60:], y[60:], test_client_ids=test_clients)
    tables = {
        "data": {"partition": "natural"},
        "model": {"name": "logistic"},
        "client": {"algorithm": "ditto", "batch_size": 20, "epochs": 2},
        "ditto": {"lam": 0.0},
        "server": {"aggregator": "fedavg", "cohort_size": 3, "num_rounds": 3, "eval_every": 3},
        "record": {"models": True},
    }
    experiment = fedsim.load(tables, data=data, seed=fedsim.sweep([0, 1]))
    info = fedsim.run(experiment, out=tmp_path / "run", progress=False).info
    without_lam = {section: values for section, values in tables.items() if section != "ditto"}
    alone = {"corruption__kind": "exclude", "corruption__clients": fedsim.sweep(OTHERS)}
    single = fedsim.load(without_lam, data=data, seed=1, client__algorithm="fedavg", **alone)
    runs = fedsim.run(single, out=tmp_path / "single", progress=False)
    accuracies = []
    for client in range(3):
        predicted = np.asarray(runs.model(client, data)(data.x_test)).argmax(axis=1)
        accuracies.append((predicted == data.y_test)[test_clients == client])
    own = info.filter((info["run"] == 1) & (info["round"] == 3))
    found = dict(zip(own["name"], own["value"], strict=True))
    assert found["personal_accuracy"] == pytest.approx(np.concatenate(accuracies).mean())
    expected = np.percentile([accuracy.mean() for accuracy in accuracies], 50)
    assert found["personal_accuracy_p50"] == pytest.approx(expected)


def test_accuracy_after_local_steps_with_whole_batches(tmp_path):
    """Gradient descent in float64 from the saved model; the labels of client 1 are flipped to the opposite class."""
    rng = np.random.default_rng(1)
    x, y, owners = rng.normal(size=(90, 4)).astype(np.float32), rng.integers(0, 3, 90), np.arange(90) % 3
    data = fedsim.from_arrays(x[:45], y[:45], owners[:45], x[45:], y[45:], test_client_ids=owners[45:])
    tables = {
        "data": {"partition": "natural"},
        "model": {"name": "logistic"},
        "corruption": {"kind": "flipping", "clients": [1]},
        "flipping": {"to": "opposite"},
        "client": {"learning_rate": 1.0, "batch_size": 15, "schedule": "cosine"},  # the second round's rate is 0.5
        "server": {"aggregator": "fedavg", "cohort_size": 3, "num_rounds": 2, "eval_every": 2},
        "record": {"models": True, "local_steps": 4},
    }
    result = fedsim.run(fedsim.load(tables, data=data, seed=fedsim.sweep([0, 1])), out=tmp_path / "a", progress=False)
    for seed in (0, 1):
        params = result.model(seed, data).variables.params["Dense_0"]
        accuracies = []
        for client in range(3):
            weights, bias = (np.asarray(params[name], np.float64) for name in ("kernel", "bias"))
            train, test = owners[:45] == client, owners[45:] == client
            labels = np.eye(3)[2 - y[:45][train] if client == 1 else y[:45][train]]
            for _ in range(4):
                logits = x[:45][train] @ weights + bias
                error = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - labels
                weights, bias = weights - 0.5 * x[:45][train].T @ error / 15, bias - 0.5 * error.mean(axis=0)
            accuracies.append(((x[45:][test] @ weights + bias).argmax(axis=1) == y[45:][test]).mean())
        own = result.info.filter((result.info["run"] == seed) & (result.info["round"] == 2))
        found = dict(zip(own["name"], own["value"], strict=True))
        assert found["personal_accuracy"] == pytest.approx(np.mean(accuracies))
        assert found["personal_accuracy_p10"] == pytest.approx(np.percentile(accuracies, 10))
        assert [found[f"personal_accuracy/{client}"] for client in range(3)] == pytest.approx(accuracies)
    without_clients = fedsim.load(tables, data=fedsim.from_arrays(x[:45], y[:45], owners[:45], x[45:], y[45:]))
    message = r"^record\.local_steps: must be 0 for arrays, whose test examples belong to no clients; "
    message += 'use data.partition = "natural", or test_client_ids$'
    with pytest.raises(ConfigError, match=message):
        fedsim.run(without_clients, out=tmp_path / "b", progress=False)
    numbers = fedsim.from_arrays(x[:45], x[:45, 0], owners[:45], x[45:], x[45:, 0], test_client_ids=owners[45:])
    with pytest.raises(ConfigError, match=r"^record\.local_steps: must be 0 for arrays, whose targets are numbers"):
        make_plan(fedsim.load({"server": {"cohort_size": 3}, "record": {"local_steps": 1}}, data=numbers))


def test_a_note_says_why_models_of_the_clients_own_are_not_measured(tmp_path):
    plan = make_plan(fedsim.load({"client": {"algorithm": "ditto"}}))
    note = "client.algorithm: ditto trains models of the clients' own, which are not measured: "
    assert plan.notes == (note + "test examples of digits belong to no clients",)
    x, y, owners = np.zeros((9, 2), np.float32), np.arange(9) // 3, np.arange(9) % 3
    data = fedsim.from_arrays(x, y, owners, x, y, test_client_ids=owners)
    keys = {"client__algorithm": "ditto", "server__cohort_size": 3, "model__name": "logistic"}
    notes = lambda placement: make_plan(fedsim.load({"data": {"placement": placement}}, data=data, **keys)).notes
    assert notes("host") == (note + "they stay on the host",)
    assert notes("device") == ()
    (tmp_path / "mine.py").write_text(
        "import fedsim\n\n\ndef same():\n    return fedsim.Algorithm(personal=lambda state, model: model)\n"
    )
    keys |= {"client__algorithm": f"{tmp_path}/mine.py:same", "server__num_rounds": 1}  # without a state
    with pytest.warns(UserWarning, match="they stay on the host"):
        fedsim.run(fedsim.load({"data": {"placement": "host"}}, data=data, **keys), out=tmp_path / "a", progress=False)
    data, keys["client__algorithm"] = fedsim.from_arrays(x, y / 7, owners, x, y / 7, test_client_ids=owners), "ditto"
    assert note + "targets of arrays are numbers" in notes("device")


def test_examples_without_a_class_are_refused(tmp_path):
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    data = fedsim.from_arrays(x, x[:, 0], np.arange(12) % 3, x, x[:, 0])
    experiment = fedsim.load({"model": {"name": "mlp"}}, data=data, record__classes=True, server__cohort_size=3)
    message = r"^record\.classes: must be false for arrays, whose examples have no single class each$"
    with pytest.raises(ConfigError, match=message):
        fedsim.run(experiment, out=tmp_path / "run", progress=False)
