"""Part e's programs: runs of Table 2 that share a rule, mapped over in one compiled call, and their checkpoints.

The protocol is that of `configs/paper/table2-cifar10.toml`, and so are the keys: the key of a run's seed is split into
one for the corruption and one for the simulation. So the rows are those of `fedsim run`, up to rounding.
"""

import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from accelerator_parts.timing import Program, compile_program
from accelerator_parts.work import Rule, Work
from fedsim.core.types import Array, ClientData, HParams, Metrics, RoundRecord, ServerState

BYZANTINE = 10  # of a cohort of 20: [multi_krum] of the configuration
RULES: dict[str, Rule] = {
    "arfl": lambda hparams: fedsim.aggregators.arfl(lam=hparams.settings["arfl.lam"]),
    "fedavg": lambda hparams: fedsim.aggregators.fedavg(),
    "cfl": lambda hparams: fedsim.aggregators.cfl(),
    "rfa": lambda hparams: fedsim.aggregators.rfa(),
    "multi_krum": lambda hparams: fedsim.aggregators.multi_krum(num_byzantine=BYZANTINE, num_selected=BYZANTINE),
}
KINDS = {
    "none": fedsim.corruption.none(),
    "shuffling": fedsim.corruption.shuffling(),
    "flipping": fedsim.corruption.flipping(),
    "noisy": fedsim.corruption.noisy(),
}
CORRUPTED, CLEAN = 1.0, 1e4  # lambda in units of M
SHARE_OF_MEMORY = 0.85


@dataclass(frozen=True)
class Run:
    """A run of the table."""

    rule: str
    kind: str
    fraction: float
    seed: int

    @property
    def name(self) -> str:
        """For example "e/arfl shuffling 50 % seed 0"."""
        what = "clean" if self.kind == "none" else f"{self.kind} {100 * self.fraction:.0f} %"
        return f"e/{self.rule} {what} seed {self.seed}"


class Group:
    """Runs of one rule, trained together; `states` are those after `num_rounds` rounds."""

    def __init__(self, work: Work, runs: Sequence[Run], every: int) -> None:
        self.work, self.runs, self.every = work, list(runs), every
        self.num_rounds = 0
        self.simulation = work.simulation(rule=RULES[runs[0].rule], record_losses=True)
        self.data = jax.tree.map(jnp.asarray, work.dataset.train)
        self.test = jnp.asarray(work.dataset.x_test), jnp.asarray(work.dataset.y_test)
        self.keys, self.hparams, self.changes = self._inputs()
        self.states: ServerState | None = None
        self.metrics: Metrics | None = None
        self.given = np.zeros((2, len(self.runs)))  # weight since the last report: to corrupted clients, to all
        self.program, self.width = self._compile()

    def _inputs(self) -> tuple[Array, HParams, dict[str, Array]]:
        """Keys, numbers and what corruption changed, [S] each."""
        keys = [jax.random.split(jax.random.key(run.seed)) for run in self.runs]  # [corruption, simulation]
        names = sorted({"corrupted"}.union(*(KINDS[run.kind].changes for run in self.runs)))
        changes = []
        for run, (key, _) in zip(self.runs, keys, strict=True):
            number = round(run.fraction * self.work.dataset.num_clients)
            changed = _corrupted(run.kind, self.work.dataset.spec, key, self.data, number)
            changes.append({name: getattr(changed, name) for name in names})
        lams = [CLEAN if run.kind == "none" else CORRUPTED for run in self.runs]
        each = lambda number: jnp.full(len(self.runs), number, jnp.float32)
        hparams = HParams(each(self.work.learning_rate), each(1), {"arfl.lam": jnp.asarray(lams, jnp.float32)})
        stacked: dict[str, Array] = jax.tree.map(lambda *one: jnp.stack(one), *changes)
        return jnp.stack([key for _, key in keys]), hparams, stacked

    def _compile(self) -> tuple[Program, int]:
        """The program of up to `every` rounds and the test, with as many runs in lockstep as there is memory for."""
        shapes = jax.eval_shape(self._init, self.keys, self.data, self.hparams, self.changes)
        arguments = shapes, self.data, self.hparams, self.changes, *self.test, jnp.int32(1)
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        width = len(self.runs)
        while True:
            program = compile_program(lambda *args, width=width: self._advance(width, *args), *arguments)
            fits = limit is None or (program.program_bytes or 0) < SHARE_OF_MEMORY * limit
            if fits or width == 1:
                return program, width
            width = -(-width // 2)

    def _init(self, keys: Array, data: ClientData, hparams: HParams, changes: dict[str, Array]) -> ServerState:
        one = lambda run: self.simulation.init(run[0], data._replace(**run[2]), run[1])
        return jax.lax.map(one, (keys, hparams, changes))

    def _advance(
        self,
        width: int,
        states: ServerState,
        data: ClientData,
        hparams: HParams,
        changes: dict[str, Array],
        x: Array,
        y: Array,
        num_rounds: Array,
    ) -> tuple[ServerState, RoundRecord, Metrics]:
        def one(run: tuple[ServerState, HParams, dict[str, Array]]) -> tuple[ServerState, RoundRecord, Metrics]:
            state, hparams, changes = run
            own = data._replace(**changes)
            state, records = self.simulation.run_rounds(state, own, hparams, self.every, num_rounds)
            return state, records, fedsim.evaluate(self.simulation.task, state.variables, x, y)

        runs = states, hparams, changes
        return jax.vmap(one)(runs) if width == len(self.runs) else jax.lax.map(one, runs, batch_size=width)

    def start(self) -> None:
        """Before the first round."""
        self.states = jax.block_until_ready(jax.jit(self._init)(self.keys, self.data, self.hparams, self.changes))

    def advance(self, num_rounds: int) -> None:
        """`num_rounds` <= `every` rounds more, and the test."""
        arguments = self.states, self.data, self.hparams, self.changes, *self.test, jnp.int32(num_rounds)
        self.states, records, self.metrics = jax.block_until_ready(self.program.call(*arguments))
        self.num_rounds += num_rounds
        weights, clients = (np.asarray(a)[:, :num_rounds] for a in (records.weights, records.client_ids))
        for run, corrupted in enumerate(np.asarray(self.changes["corrupted"])):
            self.given[:, run] += weights[run][corrupted[clients[run]]].sum(), weights[run].sum()

    def report(self) -> list[dict[str, float | None]]:
        """What each run has come to, and the share of the weight that corrupted clients got since the last report."""
        assert self.metrics is not None, "no round was made"
        correct, losses, examples = (
            np.asarray(a) for a in (self.metrics.num_correct, self.metrics.loss_sum, self.metrics.num_examples)
        )
        to_corrupted, to_all = self.given
        self.given = np.zeros_like(self.given)
        return [
            {
                "test_accuracy": float(correct[run] / examples[run]),
                "test_loss": float(losses[run] / examples[run]),
                "corrupted_weight": float(to_corrupted[run] / to_all[run]) if to_all[run] else None,
            }
            for run in range(len(self.runs))
        ]

    def save(self, folder: Path) -> None:
        """Writes a checkpoint; what is there is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        leaves = {f"leaf_{number}": _host(leaf) for number, leaf in enumerate(jax.tree.leaves(self.states))}
        about = json.dumps({"runs": [asdict(run) for run in self.runs], "num_rounds": self.num_rounds})
        path = self.path(folder)
        waiting = path.with_suffix(".tmp")
        with waiting.open("wb") as file:
            np.savez(file, about=np.asarray(about), given=self.given, **leaves)  # type: ignore[arg-type]
        os.replace(waiting, path)

    def path(self, folder: Path) -> Path:
        """Of the checkpoint."""
        first = self.runs[0].name.removeprefix("e/").replace(" %", "").replace(" ", "-")
        return folder / f"{first}-{len(self.runs)}.npz"

    def restore(self, path: Path) -> None:
        """Goes on from a checkpoint of these runs."""
        shapes = jax.eval_shape(self._init, self.keys, self.data, self.hparams, self.changes)
        with np.load(path) as file:
            leaves = [_device(file[f"leaf_{number}"], leaf) for number, leaf in enumerate(jax.tree.leaves(shapes))]
            self.num_rounds, self.given = json.loads(str(file["about"]))["num_rounds"], file["given"]
        self.states = jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _corrupted(kind: str, spec: fedsim.DataSpec, key: Array, data: ClientData, number: int) -> ClientData:
    return jax.jit(lambda key, data, number: fedsim.corrupt(KINDS[kind], key, data, spec, number))(key, data, number)


def _host(leaf: Array) -> np.ndarray:
    """A leaf as numbers; a random key as its data."""
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def _device(values: np.ndarray, like: jax.ShapeDtypeStruct) -> Array:
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    leaf = jax.random.wrap_key_data(jnp.asarray(values)) if is_key else jnp.asarray(values, like.dtype)
    if leaf.shape != like.shape:
        raise ValueError(f"a checkpoint has {leaf.shape} where {like.shape} is wanted")
    return leaf


def saved(folder: Path) -> list[tuple[Path, list[Run], int]]:
    """The checkpoints in a folder: path, runs, rounds done."""
    found: list[tuple[Path, list[Run], int]] = []
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path) as file:
                about = json.loads(str(file["about"]))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            continue
        found.append((path, [Run(**run) for run in about["runs"]], about["num_rounds"]))
    return found
