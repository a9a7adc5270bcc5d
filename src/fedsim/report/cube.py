"""Run folders as one labeled array a metric, for notebooks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.errors import FedsimError, import_extra, pip_install
from fedsim.report.metric import METRICS
from fedsim.report.reading import read
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows
from fedsim.report.settings import Setting, data_sets
from fedsim.report.swept_values import applies
from fedsim.runs.folder import RunFolder

if TYPE_CHECKING:
    from xarray import Dataset

Coordinates = list[Any]  # the values along a dimension
SPLIT, ATTACK_FRACTION = "data.seed", "attack.fraction"


def as_xarray(*folders: Path | str | RunFolder) -> "Dataset":
    """Complete run folders as an `xarray.Dataset`; of a run that several folders have, the first one's is used.

    Dimensions: aggregator, corruption, fraction, attack and attack_fraction (0: the corrupted clients attack) if
    there are several, lam, a dimension for each other swept key ("." becomes "_"), data_seed if there are several
    splits, seed and round; `data` first if there are several data sets. Variables: test_accuracy, test_loss,
    validation_accuracy, validation_loss, corrupted_weight, byzantine_excess, backdoor_success, accuracy_p10,
    accuracy_p50, accuracy_p90 and diverged (1 or 0), NaN where there is no such run or round.

    Clean data are corruption "none", fraction 0. A rule without lambda has the same values for every lam of its
    scenario (for all if no rule there has one; without any lambda, lam is NaN), and likewise a run for every value of a
    key that does not apply to it, such as one of another rule's section. A plug-in is called by its function's name.
    Raises `FedsimError` if xarray is missing.
    """
    xr = import_extra("xarray", FedsimError, f"as_xarray needs xarray: {pip_install('notebook')}")
    results = read(*(folder if isinstance(folder, RunFolder) else RunFolder(Path(folder)) for folder in folders))
    keys = list(dict.fromkeys(key for setting in results.settings for key, _ in setting.swept_values))
    axes = _axes(results, keys)
    names = {metric.name: metric.column for metric in METRICS} | {"diverged": "diverged"}
    arrays = {name: np.full(tuple(map(len, axes.values())), np.nan) for name in names.values()}
    for setting in results.settings:
        for split in dict.fromkeys(setting.splits):
            members = np.asarray(setting.splits) == split
            coordinates = _coordinates(setting, split, results, keys, axes)
            where = np.ix_(*(_positions(axes[name], values) for name, values in coordinates.items()))
            for field, name in names.items():
                arrays[name][where] = getattr(setting, field)[members]  # [seeds, T]: the last two dimensions
    dims = [name.replace(".", "_") for name in axes]
    variables = {name: (dims, array) for name, array in arrays.items()}
    return xr.Dataset(variables, dict(zip(dims, axes.values(), strict=True)), attributes(results))


def _axes(results: Results, keys: Sequence[str]) -> dict[str, Coordinates]:
    settings = results.settings
    configs = [results.runs[setting.runs[0]] for setting in settings]
    data = data_sets(settings)
    attacks = list(dict.fromkeys(setting.attack for setting in settings))
    malicious = sorted({setting.attack_fraction or 0.0 for setting in settings})
    splits = sorted({split for setting in settings for split in setting.splits})
    return {
        **({"data": data} if len(data) > 1 else {}),
        "aggregator": ordered_rows((setting, setting.aggregator) for setting in settings),
        "corruption": list(dict.fromkeys(setting.corruption for setting in settings)),
        "fraction": sorted({setting.fraction for setting in settings}),
        **({"attack": attacks} if len(attacks) > 1 else {}),
        **({ATTACK_FRACTION: malicious} if len(malicious) > 1 else {}),
        "lam": sorted({setting.lam for setting in settings if setting.lam is not None}) or [np.nan],
        **{key: _ordered({config[key] for config in configs if applies(key, config)}) for key in keys},
        **({SPLIT: splits} if len(splits) > 1 else {}),
        "seed": sorted({seed for setting in settings for seed in setting.seeds}),
        "round": sorted({int(round_) for setting in settings for round_ in setting.rounds}),
    }


def _ordered(values: set[Any]) -> Coordinates:
    """Numbers ascending; anything else as text, by the alphabet."""
    numbers = all(isinstance(value, int | float) for value in values)
    return sorted(values) if numbers else sorted(map(str, values))


def _coordinates(
    setting: Setting, split: int, results: Results, keys: Sequence[str], axes: dict[str, Coordinates]
) -> dict[str, Coordinates]:
    """The values that a setting's runs of a split have along each dimension, in the dimensions' order."""
    config = results.runs[setting.runs[0]]
    scenario_lams = (other.lam for other in results.settings if other.data_scenario == setting.data_scenario)
    lams = sorted({lam for lam in scenario_lams if lam is not None}) or axes["lam"]
    values: dict[str, Coordinates] = {
        "data": [setting.data],
        "aggregator": [setting.aggregator],
        "corruption": [setting.corruption],
        "fraction": [setting.fraction],
        "attack": [setting.attack],
        ATTACK_FRACTION: [setting.attack_fraction or 0.0],
        "lam": lams if setting.lam is None else [setting.lam],
        **{key: [config[key]] if applies(key, config) else axes[key] for key in keys},
        SPLIT: [split],
        "seed": [seed for of_split, seed in setting.draws if of_split == split],
        "round": setting.rounds.tolist(),
    }
    return {name: values[name] for name in axes}


def _positions(axis: Coordinates, values: Coordinates) -> list[int]:
    """The positions of `values` in `axis`."""
    if axis is values:
        return list(range(len(axis)))
    as_text = all(isinstance(value, str) for value in axis)
    return [axis.index(str(value) if as_text else value) for value in values]


def attributes(results: Results) -> dict[str, str]:
    """name, versions and device, those of several folders separated by "; "."""
    texts = {
        "name": [config["name"] for config in results.runs],
        "versions": [_pairs(manifest["versions"]) for manifest in results.manifests],
        "device": [_pairs(manifest["device"]) for manifest in results.manifests],
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in texts.items()}


def _pairs(values: dict[str, Any] | None) -> str:
    return ", ".join(f"{key} {value}" for key, value in (values or {}).items())
