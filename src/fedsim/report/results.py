"""What is read from run folders, and what was chosen by it."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from fedsim.errors import ConfigError
from fedsim.report.final import LAST
from fedsim.report.names import SweptValues, percent, scenario_name
from fedsim.report.settings import Scenario, Setting
from fedsim.report.swept_values import Run
from fedsim.runs.folder import RunFolder

BASELINE = "arfl"  # the rule that others are compared with by default


@dataclass(frozen=True)
class Choice:
    """The values that were chosen for a rule."""

    setting: Setting
    """The first setting with these values."""
    where: Scenario | float
    """The scenario, or the share of corrupted or malicious clients under any attack."""
    values: SweptValues
    optimism: float
    """How much better the test metric, in the worst scenario, would be if the test set had been used to choose."""

    @property
    def where_name(self) -> str:
        """For example "20 %" or "ALIE 20 %"."""
        return percent(self.where) if isinstance(self.where, float) else scenario_name(self.where)


@dataclass(frozen=True)
class Selection:
    """All that was chosen, and how."""

    keys: tuple[str, ...]
    by: str
    """"validation" or "test"."""
    per: str
    """"scenario" or "worst"."""
    choices: tuple[Choice, ...]

    @property
    def sentence(self) -> str:
        """For a caption."""
        on = "validation data" if self.by == "validation" else "the test set itself, which is optimistic"
        per = "one value for the worst attack at each share" if self.per == "worst" else "each scenario by itself"
        return f"{', '.join(self.keys)}: chosen on {on}, {per}."


@dataclass(frozen=True)
class Results:
    """The contents of run folders."""

    folders: tuple[RunFolder, ...]
    manifests: tuple[dict[str, Any], ...]
    runs: tuple[Run, ...]
    """The configuration of each run by dotted key."""
    sources: tuple[tuple[int, int], ...]
    """For each run, the position of its folder and its position in that folder."""
    settings: list[Setting]
    clients: pl.DataFrame
    """clients.parquet of all folders; `run` is a position in `runs`."""
    num_repeated: int
    """Runs that were left out because an earlier folder has them."""
    selection: Selection | None = None
    """None: nothing was chosen, so that `settings` has all."""
    incomplete: tuple[str, ...] = ()
    """Sentences on runs that are missing: of folders that are not complete, and of `--confirm`."""
    explored: dict[Setting, Setting] = field(default_factory=dict)
    """With `--confirm`: each setting with the runs that are not shown, on which is chosen."""
    confirmed: str = ""
    """With `--confirm`: the runs that are shown, for example "data.seed 5 to 9"."""

    def is_own(self, out: RunFolder, baseline: str = BASELINE) -> bool:
        """Whether this is the default report of the run folder `out`: of its runs alone, without choices."""
        is_plain = self.selection is None and not self.confirmed and baseline == BASELINE
        is_last = all(setting.final == LAST for setting in self.settings)
        return is_plain and is_last and [folder.path.resolve() for folder in self.folders] == [out.path.resolve()]

    def check_destination(self, out: RunFolder, baseline: str = BASELINE) -> None:
        """Raises `ConfigError` if `out` is a run folder and this is not its default report, which would be lost."""
        if (out.path / "manifest.json").exists() and not self.is_own(out, baseline):
            raise ConfigError(
                "--out: must not be a run folder, whose default report would be overwritten by another one, "
                f"got {out.path}; choose a new folder"
            )

    def basis(self, setting: Setting) -> Setting:
        """The setting with the runs on which is chosen: those that are shown, or the others."""
        return self.explored.get(setting, setting)

    @property
    def remarks(self) -> list[str]:
        """For figures and pages: what was chosen, and which runs are shown."""
        chosen = [self.selection.sentence] if self.selection else []
        shown = f"Runs with {self.confirmed} are shown; choices were made on the others."
        return chosen + ([shown] if self.confirmed else [])

    @property
    def choice_remark(self) -> str:
        """How what was chosen by its numbers is to be read."""
        return (
            f"chosen on the other runs, shown for {self.confirmed}"
            if self.confirmed
            else "chosen by these numbers (exploratory)"
        )
