"""Adversaries: every attack of a list, with fixed settings."""

import pytest

from fedsim.config.toml import parse
from fedsim.errors import ConfigError

TABLES = {
    "adversary": "standard-1",
    "server": {"aggregator": "median"},
    "corruption": {"kind": "none", "fraction": 0.2},
}

# All settings of standard-1. Results of different versions of fedsim are comparable because these never change: if a
# default has to, the adversary names the value of today.
STANDARD_1 = [
    ("sign_flip", {"scale": 1.0}),
    ("ipm", {"tau": 0.5}),
    ("alie", {"z": None, "sign": "plus", "deviation": "population", "knowledge": "all"}),
    ("min_max", {"perturbation": "unit"}),
    ("min_sum", {"perturbation": "unit", "bound": "largest"}),
    ("mimic", {"target": "learned", "warmup": 50, "client_id": 0}),
    ("gaussian", {"std": 200.0, "center": "zero"}),
    ("fake_loss", {"scale": 0.01}),
    ("fake_counts", {"factor": 10.0}),
    ("fang", {"against": "trimmed_mean", "range_factor": 2.0, "num_halvings": 20}),
    ("fang", {"against": "krum", "range_factor": 2.0, "num_halvings": 20}),
    ("optimal_ipm", {"search": "grid", "min_strength": 0.01, "max_strength": 100.0, "num_strengths": 16}),
    *(
        (
            "optimal_alie",
            {
                "search": "grid",
                "min_strength": 0.01,
                "max_strength": 100.0,
                "num_strengths": 16,
                "sign": sign,
                "deviation": "population",
            },
        )
        for sign in ("plus", "minus")
    ),
    *(
        ("ascent", {"objective": objective, "num_steps": 10, "knowledge": "all"})
        for objective in ("distance", "drift", "loss")
    ),
]


def test_standard_1_is_fixed():
    runs = parse(TABLES).runs()
    settings = [(run.attack.kind, run.section(run.attack.kind)) for run in runs]
    assert [kind for kind, _ in settings] == [kind for kind, _ in STANDARD_1]
    for actual, expected in zip(settings, STANDARD_1, strict=True):
        assert actual == expected


def test_an_adversary_multiplies_the_sweep_and_attacks_nobody_once():
    sweep = [{"seed": [0, 1], "corruption": {"fraction": [0.0, 0.2]}}]
    experiment = parse(TABLES | {"sweep": sweep})
    runs = experiment.runs()
    assert len(runs) == 2 * (1 + len(STANDARD_1))
    assert experiment.adversary == "standard-1"
    assert parse(TABLES | {"sweep": sweep}, {"adversary": "default"}).runs()[0].attack.kind == "none"


def test_an_adversary_without_malicious_clients_has_no_effect():
    experiment = parse(TABLES, {"corruption.fraction": 0.0})
    lines = [line for line in experiment.unused_keys(experiment.runs()) if not line.startswith("corruption.")]
    assert lines == [
        "adversary: has no effect: no participating client is malicious: set attack.fraction, or corruption.fraction "
        "without exclude"
    ]
    attacked = parse(TABLES)
    assert attacked.unused_keys(attacked.runs()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adversary": 1}, "adversary: must be text, got 1"),
        ({"adversary": "standard-0"}, "adversary: must be a known name"),
        ({"attack": {"kind": "alie"}}, "attack.kind: must be left out with adversary = standard-1"),
        ({"alie": {"z": 2.0}}, "alie.z: must be left out"),
        ({"sweep": [{"ipm": {"tau": [0.1, 1.0]}}]}, "ipm.tau: must be left out"),
        ({"sweep": [{"adversary": ["standard-1"]}]}, "adversary: must have one value"),
    ],
)
def test_what_an_adversary_fixes_is_left_out(changes, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        parse(TABLES | changes)
