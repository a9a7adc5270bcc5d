"""Warnings about keys without effect on any run."""

import pytest

from fedsim.config.toml import parse

CORRUPTED = "corruption.kind='flipping'\ncorruption.fraction=0.5\n"
SWEEP = "[[sweep]]\nserver.aggregator=['fedavg', 'arfl']\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("server.aggregator='fedavg'\narfl.lam=3.0", ["arfl.lam: has no effect: no run uses arfl"]),
        ("arfl.lam=3.0\nkrum.num_byzantine=1", ["krum.num_byzantine: has no effect: no run uses krum"]),
        ("arrays.path='missing.npz'", ["arrays.path: has no effect: no run uses arrays"]),
        ("attack.kind='ipm'", ["attack.kind: has no effect: no participating client is malicious"]),
        ("attack.fraction=0.1", ["attack.fraction: has no effect: there is no attack: set attack.kind"]),
        ("attack.clients=[1]", ["attack.clients: has no effect: there is no attack: set attack.kind"]),
        (
            "attack.kind='ipm'\nattack.clients=[1]\nattack.fraction=0.1",
            ["attack.fraction: has no effect: attack.clients replaces it"],
        ),
        (
            "corruption.kind='exclude'\ncorruption.fraction=0.5\nattack.kind='ipm'",
            ["attack.kind: has no effect: no participating client is malicious"],
        ),
        ("adapter.rank=0\nadapter.alpha=3", ["adapter.alpha: has no effect: no layer has an adapter"]),
        ("corruption.kind='flipping'", ["corruption.kind: has no effect: no clients are corrupted"]),
        ("corruption.fraction=0.5", ["corruption.fraction: has no effect: there is no corruption or attack"]),
        (CORRUPTED + "corruption.clients=[1]", ["corruption.fraction: has no effect: corruption.clients replaces"]),
        ("engine.micro_batch=64", ["engine.micro_batch: has no effect: the largest batch has 32 examples"]),
        ("client.steps=2\nclient.epochs=3", ["client.epochs: has no effect: client.steps replaces it"]),
        (
            "client.optimizer='adam'\nclient.momentum=0.5",
            ['client.momentum: has no effect: client.optimizer is not "sgd"'],
        ),
        (
            "client.optimizer='adam'\nadam.b1=0.5",
            ["adam.b1: has no effect: no run uses adam; did you mean client_adam.b1?"],
        ),
        ("client_adam.b1=0.5\n[[sweep]]\nclient.optimizer=['sgd', 'adam']", []),
        ("[[sweep]]\nseed=[0, 1, 0]", ["sweep: seed has a value twice"]),
        ("[[sweep]]\nname=['a', 'b']", ["sweep: name changes no results"]),
        ("[[sweep]]\nengine.run_width=[1, 2]", ["sweep: engine.run_width changes no results"]),
        ("[[sweep]]\nserver.num_rounds=[10, 20]", ["sweep: server.num_rounds: 10 rounds are part"]),
        ("client.schedule='cosine'\n[[sweep]]\nserver.num_rounds=[10, 20]", []),
        (
            "server.aggregator='norm_clipping'\nserver.layerwise=true\nnorm_clipping.delta=1e-5",
            ["norm_clipping.delta: has no effect: server.layerwise is true"],
        ),
        ("data.name='table'\ntable.window=5", ['table.window: has no effect: table.text is ""']),
        ("data.name='table'\ntable.window=5\ntable.text='t'", []),
        ("arfl.target=3", ['arfl.target: has no effect: arfl.lam is not "auto"']),
        (
            CORRUPTED + "attack.kind='fang'\nfang.num_halvings=3",
            ["fang.num_halvings: has no effect: fang.against is not"],
        ),
        (CORRUPTED + "attack.kind='mimic'\nmimic.client_id=3", ["mimic.client_id: has no effect: mimic.target is not"]),
        ("arfl.target=3\n[[sweep]]\narfl.lam=[1.0, 'auto']", []),
        ("arfl.target_of='clients'", []),
        (CORRUPTED + "attack.kind='ipm'\ndata.num_clients=30\nengine.micro_batch=8", []),
        ("arfl.lam=3.0\n" + SWEEP, []),
        ("corruption.fraction=0.5\n[[sweep]]\ncorruption.kind=['none', 'flipping']", []),
        ("corruption.kind='flipping'\n[[sweep]]\ncorruption.fraction=[0.0, 0.5]", []),
        ("corruption.kind='none'\nattack.kind='none'\nclient.epochs=1", []),
    ],
)
def test_unused_keys(text, lines):
    experiment = parse(text)
    warnings = experiment.unused_keys(experiment.runs())
    assert len(warnings) == len(lines)
    assert all(warning.startswith(line) for warning, line in zip(warnings, lines, strict=True))


def test_keys_of_rules_removed_by_an_override_or_preset_are_allowed():
    text = "arfl.lam=3.0\n" + SWEEP + "[preset.small]\nserver.aggregator='fedavg'\n"
    for experiment in (parse(text, {"server.aggregator": "fedavg"}), parse(text, preset="small")):
        assert experiment.unused_keys(experiment.runs()) == []
    prefixed = parse("client.optimizer='adam'\nclient_adam.b1=0.5", {"client.optimizer": "sgd"})
    assert prefixed.unused_keys(prefixed.runs()) == []
    overridden = parse(text, {"server.aggregator": "fedavg", "arfl.lam": 2})
    assert overridden.unused_keys(overridden.runs()) == ["arfl.lam: has no effect: no run uses arfl"]
    replaced = parse(CORRUPTED + "server.num_byzantine=1\nserver.aggregator='krum'", {"server.aggregator": "median"})
    assert replaced.unused_keys(replaced.runs()) == []
