"""A command and a configuration for each setting, which run it again."""

import shlex
import tomllib
from itertools import groupby
from typing import Any

from fedsim.config.values import format_toml
from fedsim.report.keys import Run, applies, configuration, is_shared_f, section
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.differences import flatten
from fedsim.runs.sweep import varying_keys

Table = dict[str, Any]


def commands(results: Results) -> list[str]:
    """For each setting, the command that runs it from its folder's config.toml; empty if no command can."""
    swept = [_swept_keys(manifest) for manifest in results.manifests]
    lines = []
    for setting in results.settings:
        folder, config = _source(results, setting)
        first, *others = draw_blocks(setting)
        is_needed = lambda key, config=config: config[key] is not None or applies(key, config)
        keys = [k for k in config if k in swept[folder] - {*first} and not is_shared_f(k, config) and is_needed(k)]
        words = ["fedsim", "run", str(results.folders[folder].path / "config.toml")]
        for key in keys:
            words += [f"--{key}", config[key] if isinstance(config[key], str) else format_toml(config[key])]
        for key, values in first.items():
            words += [f"--sweep.{key}", *map(str, values)]
        lines.append("" if others or any(config[key] is None for key in keys) else shlex.join(words))
    return lines


def draw_blocks(setting: Setting) -> list[dict[str, list[int]]]:
    """The setting's splits and seeds as blocks of a sweep: one if all splits have the same seeds, else one a split."""
    seeds = {split: [seed for of, seed in setting.draws if of == split] for split in dict.fromkeys(setting.splits)}
    if len(set(map(frozenset, seeds.values()))) > 1:
        return [{"data.seed": [split], "seed": of_split} for split, of_split in seeds.items()]
    splits = {"data.seed": list(seeds)} if len(seeds) > 1 else {}
    return [splits | {"seed": list(dict.fromkeys(seed for _, seed in setting.draws))}]


def _swept_keys(manifest: Table) -> set[str]:
    """The keys of the folder's sweep, and those that vary among its runs."""
    blocks = tomllib.loads(manifest["config"]).get("sweep", [])
    return {*varying_keys(manifest["runs"]), *(key for block in blocks for key in flatten(block))}


def setting_tomls(results: Results) -> list[str]:
    """For each setting, its runs as one TOML file."""
    return [_toml(_source(results, setting)[1], setting) for setting in results.settings]


def _source(results: Results, setting: Setting) -> tuple[int, Run]:
    """The position of the folder of a setting's first run, and the run with the names of its config.toml."""
    folder, run = results.sources[setting.runs[0]]
    return folder, configuration(results.manifests[folder]["runs"][run])


def _toml(config: Run, setting: Setting) -> str:
    blocks = draw_blocks(setting)
    keys = sorted((key for key, value in config.items() if value is not None and key not in blocks[0]), key=section)
    lines = []
    for name, group in groupby(keys, key=section):
        lines += [f"\n[{name}]"] if name else []
        lines += [f"{key.rpartition('.')[2]} = {format_toml(config[key])}" for key in group]
    for block in blocks:
        lines += ["\n[[sweep]]", *(f"{key} = {format_toml(values)}" for key, values in block.items())]
    return "\n".join(lines) + "\n"
