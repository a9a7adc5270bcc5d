"""Matches the runs of a plan with those of a run folder: which the folder has, and which get more rounds."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.components import flatten
from fedsim.config.schema import Config
from fedsim.engine import build
from fedsim.engine.manifest import Manifest, read_groups
from fedsim.engine.plan import Plan
from fedsim.errors import RunFolderError
from fedsim.runs.differences import find_differences
from fedsim.runs.folder import RunFolder
from fedsim.runs.sweep import split_common

ROUNDS = "server.num_rounds"
OR_ELSE = "choose another --out, or add --force to start over"
MAX_CHANGES = 3  # that a message lists


def match_runs(folder: RunFolder, manifest: Manifest, plan: Plan, extend: bool) -> list[int]:
    """The positions in `plan` of the manifest's runs, each with at least as many rounds there.

    Without `extend` these are all runs of the plan, with the same rounds. Raises `RunFolderError` if they are not.
    """
    before = manifest["runs"]
    _, different = split_common([*before, *map(flatten, plan.runs)])
    keys = list(map(_key, different))
    positions_of: dict[str, dict[int, int]] = {}  # by rounds, of runs that are equal except for these
    for position, (config, key) in enumerate(zip(plan.runs, keys[len(before) :], strict=True)):
        positions_of.setdefault(key, {})[config.server.num_rounds] = position
    positions: dict[int, int] = {}  # to rounds in the folder
    for run, key in zip(before, keys, strict=False):
        by_rounds = positions_of.get(key, {})
        rounds = run[ROUNDS] if run[ROUNDS] in by_rounds else max(by_rounds, default=-1)
        if rounds >= run[ROUNDS]:
            positions[by_rounds[rounds]] = run[ROUNDS]

    missing = len(manifest["runs"]) - len(positions)
    has_more_rounds = any(plan.runs[position].server.num_rounds > rounds for position, rounds in positions.items())
    has_more_runs = len(positions) < len(plan.runs)
    if not missing and (extend or not (has_more_rounds or has_more_runs)):
        return list(positions)
    if missing:
        remedy = f"{missing} of its runs are not in this config; {OR_ELSE}" if extend else OR_ELSE
    elif has_more_rounds:
        remedy = f"add --extend to add rounds to its runs, {OR_ELSE}"
    else:
        new = len(plan.runs) - len(positions)
        remedy = f"add --extend to keep its {len(positions)} runs and add {new}, {OR_ELSE}"
    changes = list_changes(tomllib.loads(manifest["config"]), tomllib.loads(plan.experiment.dump()))
    raise RunFolderError(f"{folder.path}: holds results of another config: {changes}; {remedy}")


def _key(run: dict[str, Any]) -> str:
    """Equal for runs by dotted key that are equal except for their rounds."""
    return json.dumps(run | {ROUNDS: None}, sort_keys=True)


def groups_to_extend(folder: RunFolder, manifest: Manifest, plan: Plan) -> list[int]:
    """The groups of the manifest whose runs, the first ones of the plan, get more rounds.

    Raises `RunFolderError` if the rounds cannot be added to those in the folder.
    """
    numbers = []
    for number, group in enumerate(read_groups(manifest)):
        before = [manifest["runs"][run][ROUNDS] for run in group.runs]
        configs = plan.configs(group)
        if [config.server.num_rounds for config in configs] != before:
            _check_more_rounds(folder, number, before[0], configs)
            numbers.append(number)
    return numbers


def _check_more_rounds(folder: RunFolder, number: int, before: int, configs: Sequence[Config]) -> None:
    """Raises `RunFolderError` if group `number` of the runs `configs` with `before` rounds cannot be extended."""
    after, eval_every = configs[0].server.num_rounds, configs[0].server.eval_every
    cannot_extend = f"{folder.path}: cannot add rounds"
    if any(config.server.num_rounds != after for config in configs):
        raise RunFolderError(f"{cannot_extend}: the runs of a group must have the same {ROUNDS}; {OR_ELSE}")
    if before % eval_every:
        raise RunFolderError(
            f"{cannot_extend}: its {before} rounds are not a multiple of server.eval_every = {eval_every}; {OR_ELSE}"
        )
    if folder.read_finished(number) and not folder.has_checkpoint(number):
        raise RunFolderError(
            f"{cannot_extend}: its final states were not saved (record.final_states = false); {OR_ELSE}"
        )
    if not _has_equal_rates(configs, before):
        raise RunFolderError(
            f"{cannot_extend}: with {after} rounds the learning rates of the first {before} would differ; {OR_ELSE}"
        )


def _has_equal_rates(configs: Sequence[Config], before: int) -> bool:
    """Whether the learning rates of the first rounds are the same as with `before` rounds in all."""
    hparams = jax.tree.map(lambda *numbers: jnp.asarray(numbers), *map(build.hparams, configs))

    def rates(num_rounds: int) -> list[np.ndarray]:
        config = replace(configs[0], server=replace(configs[0].server, num_rounds=num_rounds))
        schedule = jax.vmap(build.schedule(config), in_axes=(0, None))
        scheduled = jax.vmap(lambda round: schedule(hparams, round))(jnp.arange(before))
        return [np.asarray(scheduled.learning_rate), np.asarray(scheduled.server_learning_rate)]

    return all(map(np.array_equal, rates(before), rates(configs[0].server.num_rounds)))


def list_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The first few keys whose values differ, for example "versions.jax was 0.10.2, is 0.12.0"."""
    changes = [f"{key} was {old}, is {new}" for key, old, new in find_differences(before, now)]
    more = [f"and {len(changes) - MAX_CHANGES} more"] if len(changes) > MAX_CHANGES else []
    return "; ".join([*changes[:MAX_CHANGES], *more]) or "its runs"
