"""Run folders that get more runs or rounds: what of a plan is there, and whether one can go on from it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.resolve import flatten
from fedsim.config.schema import Config
from fedsim.engine import build
from fedsim.engine.plan import Plan
from fedsim.errors import RunFolderError
from fedsim.runs.folder import RunFolder

ROUNDS = "server.num_rounds"
OR_ELSE = "choose another --out, or add --force to start over"


def begun(found: dict[str, Any], plan: Plan, extend: bool) -> list[int] | str:
    """The positions in the plan of the runs that the manifest `found` has, each with as many rounds there or more.

    Those are all runs of the plan, with the same rounds, unless the folder is to be extended. Else a text that says
    what is missing, to come behind how the two differ.
    """
    here: dict[str, dict[int, int]] = {}  # positions by the rounds, of runs that are alike but for these
    for position, config in enumerate(plan.runs):
        here.setdefault(_key(flatten(config)), {})[config.server.num_rounds] = position

    def position_of(run: dict[str, Any]) -> int | None:
        alike = here.get(_key(run), {})
        rounds = run[ROUNDS] if run[ROUNDS] in alike else max(alike, default=-1)
        return alike[rounds] if rounds >= run[ROUNDS] else None

    positions = [position_of(run) for run in found["runs"]]
    known = [position for position in positions if position is not None]
    if len(set(known)) < len(positions):
        return f"; {len(positions) - len(set(known))} of its runs are not among these" if extend else ""
    if extend:
        return known
    rounds = [plan.runs[position].server.num_rounds for position in known]
    if any(more > run[ROUNDS] for more, run in zip(rounds, found["runs"], strict=True)):
        return "; add --extend to go on from the rounds that it has"
    if len(known) < len(plan.runs):
        return f"; add --extend to keep its {len(known)} runs and make the other {len(plan.runs) - len(known)}"
    return known


def _key(run: dict[str, Any]) -> str:
    """Equal for runs that are alike but for their rounds, from a manifest or not."""
    return json.dumps(run | {ROUNDS: None}, sort_keys=True)


def further(folder: RunFolder, found: dict[str, Any], plan: Plan) -> list[int]:
    """The groups of the manifest `found` whose runs, the first of the plan, get more rounds.

    `RunFolderError` where these rounds cannot be what comes behind those that are there.
    """
    numbers = []
    for number, entry in enumerate(found["plan"]):
        before = [found["runs"][run][ROUNDS] for run in entry["runs"]]
        configs = [plan.runs[run] for run in entry["runs"]]
        if [config.server.num_rounds for config in configs] != before:
            if problem := _problem(folder, number, before[0], configs):
                raise RunFolderError(f"{folder.path}: cannot get more rounds: {problem}; {OR_ELSE}")
            numbers.append(number)
    return numbers


def _problem(folder: RunFolder, number: int, before: int, configs: Sequence[Config]) -> str | None:
    """Why the group of the runs `configs`, which had `before` rounds, cannot go on."""
    server = configs[0].server
    if any(config.server.num_rounds != server.num_rounds for config in configs):
        return f"runs that share a program must have the same {ROUNDS}"
    if before % server.eval_every:
        return f"its last evaluation, after {before} rounds, is none of one every {server.eval_every}"
    if folder.finished(number) and not folder.has_checkpoint(number):
        return "the states at the end of its runs were not kept (record.states = true keeps them)"
    if not _same_rates(configs, before):
        return f"with {server.num_rounds} rounds the learning rates of the first {before} would have been others"
    return None


def _same_rates(configs: Sequence[Config], before: int) -> bool:
    """Whether the learning rates of the first rounds are what they were when there were `before` rounds."""
    hparams = jax.tree.map(lambda *numbers: jnp.asarray(numbers), *map(build.hparams, configs))

    def rates(num_rounds: int) -> list[np.ndarray]:
        one = configs[0]
        of_round = build.schedule(replace(one, server=replace(one.server, num_rounds=num_rounds)))
        found = jax.vmap(lambda round_: jax.vmap(lambda own: of_round(own, round_))(hparams))(jnp.arange(before))
        return [np.asarray(found.learning_rate), np.asarray(found.server_learning_rate)]

    return all(map(np.array_equal, rates(before), rates(configs[0].server.num_rounds)))


def extend(folder: RunFolder, manifest: dict[str, Any], further: Sequence[int]) -> None:
    """Writes the `manifest` with all that is to be run; the groups `further` are complete no longer."""
    for number in further:
        folder.reopen(number)
    folder.write_manifest(manifest)
    folder.write_text("config.toml", manifest["config"])
