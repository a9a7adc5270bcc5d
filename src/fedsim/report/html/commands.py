"""A command and a configuration for each setting, which run it again."""

import shlex
from itertools import chain

from fedsim.config.fields import DEFAULTS
from fedsim.config.roles import NOT_IN_IDS
from fedsim.config.values import format_word, to_toml
from fedsim.report.keys import applies, hashable, is_shared_f, section
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.differences import flatten_tables


def commands(results: Results) -> list[str]:
    """For each setting, the command that runs it, from the latest configuration of its folder; empty if none can."""
    latest = {folder: next(iter(folder.read_configs().items()), None) for folder in results.folders}
    lines = []
    for setting in results.settings:
        folder, run = results.sources[setting.runs[0]]
        if (stored := latest[folder]) is None:
            lines.append("")
            continue
        config, (path, tables) = run.keys, stored
        values, swept = flatten_tables(tables), {*chain.from_iterable(map(flatten_tables, tables.get("sweep", [])))}
        first, *others = draw_blocks(setting)
        unchanged = {key for key in config if hashable(values.get(key, DEFAULTS.get(key))) == config[key]}
        given = (unchanged - swept) | NOT_IN_IDS | first.keys()
        keys = [key for key in config if key not in given and not is_shared_f(key, config)]
        keys = [key for key in keys if config[key] is not None or applies(key, config)]
        is_in_memory = config["data.name"] == "arrays" and not config.get("arrays.path")
        words = ["fedsim", "run", str(path)]
        for key in keys:
            words += [f"--{key}", format_word(config[key])]
        for key, draws in first.items():
            words += [f"--sweep.{key}", *map(str, draws)]
        is_possible = not (others or is_in_memory or any(config[key] is None for key in keys))
        lines.append(shlex.join(words) if is_possible else "")
    return lines


def draw_blocks(setting: Setting) -> list[dict[str, list[int]]]:
    """The setting's splits and seeds as blocks of a sweep: one if all splits have the same seeds, else one a split."""
    seeds = {split: [seed for of, seed in setting.draws if of == split] for split in dict.fromkeys(setting.splits)}
    if len(set(map(frozenset, seeds.values()))) > 1:
        return [{"data.seed": [split], "seed": of_split} for split, of_split in seeds.items()]
    splits = {"data.seed": list(seeds)} if len(seeds) > 1 else {}
    return [splits | {"seed": list(dict.fromkeys(seed for _, seed in setting.draws))}]


def setting_tomls(results: Results) -> list[str]:
    """For each setting, its runs as one TOML file."""
    texts = []
    for setting in results.settings:
        config, blocks = results.sources[setting.runs[0]][1].keys | {"name": results.name}, draw_blocks(setting)
        keys = sorted((key for key, value in config.items() if value is not None and key not in blocks[0]), key=section)
        texts.append(to_toml({key: config[key] for key in keys}, blocks))
    return texts
