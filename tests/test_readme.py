"""The README's Python, run as it stands, block after block."""

import re
from pathlib import Path

import numpy as np

from fedsim.config.toml import parse

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_two_lines_run_an_experiment(tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(compile(blocks("python")[0], "README.md", "exec"), namespace)
    assert len(namespace["final"]) == 2 * 3
    assert namespace["final"].between(0.1, 1).all()


def test_python_blocks_run_and_show_what_they_say():
    namespace: dict = {}
    for block in blocks("python")[1:]:
        exec(compile(block, "README.md", "exec"), namespace)
    assert float(namespace["accuracy"]) > 0.9
    weight = np.asarray(namespace["on_corrupted"])[:, -5:].mean(axis=1)
    assert weight[0] == 0  # small lambda: nothing to corrupted clients
    assert weight[2] == 0
    assert weight[-1] > 0.2  # large lambda: FedAvg
    rule, simulation = namespace["lowest_losses"], namespace["simulation"]
    import dataclasses

    import jax

    own = dataclasses.replace(simulation, aggregator=lambda hparams: rule())
    clients, key = namespace["clients"], namespace["key"]
    hparams = namespace["fedsim"].HParams()
    state = own.init(key, clients, hparams)
    _, record = jax.jit(own.round)(state, clients, hparams)
    assert int((record.weights > 0).sum()) == 5


def test_length_of_the_snippets():
    """The face stays small: about 15 lines to build and train, about 10 for a rule."""
    counts = lambda line: line.strip() and not line.startswith(("import", "from"))
    build, _, rule = (len([line for line in block.splitlines() if counts(line)]) for block in blocks("python")[1:])
    assert build <= 16
    assert rule <= 11


def test_toml_block_is_a_sweep():
    (block,) = blocks("toml")
    assert len(parse(block).runs()) == 2 * 2 * 3 * 5
