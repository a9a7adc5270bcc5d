"""What is read from run folders, and what was chosen by it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from polars import col

from fedsim.config.registry import did_you_mean, nearest
from fedsim.config.resolve import schema
from fedsim.config.values import KEYS
from fedsim.core.settings import MAX_INT
from fedsim.errors import ConfigError
from fedsim.report.compare import SPLIT, byzantine_excess, compare, count_runs, detection, differences, finals, units
from fedsim.report.final import LAST, Final, parse
from fedsim.report.keys import Run, hashable
from fedsim.report.metric import ACCURACY, BACKDOOR, DETECTION, EXCESS, LOSS, Metric
from fedsim.report.names import SweptValues
from fedsim.report.settings import Setting
from fedsim.runs.folder import RunFolder, StoredRun, read_rows
from fedsim.runs.groups import GroupFolder

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment

SURE = 0.85  # share of equal characters of a key and the one that was meant
BASELINE = "arfl"  # the rule that others are compared with by default


@dataclass(frozen=True)
class Choice:
    """The values that were chosen for a rule."""

    setting: Setting  # the first with these values
    where: str  # the scenario, or the share of corrupted or malicious clients under any attack
    values: SweptValues
    optimism: float
    """How much better the test metric, in the worst scenario, would be if the test set had been used to choose.

    NaN with `--confirm`, which shows other runs.
    """


@dataclass(frozen=True)
class Selection:
    """All that was chosen, and how."""

    sentence: str
    by: str  # "validation" or "test"
    choices: tuple[Choice, ...]


@dataclass(frozen=True, eq=False)
class Results:
    """The contents of run folders."""

    folders: tuple[RunFolder, ...]
    runs: tuple[Run, ...]  # the configuration of each by dotted key
    sources: tuple[tuple[RunFolder, StoredRun], ...]  # of each run: its folder, and the run there, with its model
    settings: list[Setting]
    table: pl.DataFrame
    """A row a run and evaluation: the columns of `schemas.ROUNDS`, the data set, the position of the setting, all keys.

    `run` is a position in `runs`. Of the settings and runs that are shown.
    """
    final: Final  # which evaluations tables and figures show
    num_repeated: int  # runs that were left out because another folder has them
    selection: Selection | None = None  # None: nothing was chosen, so that `settings` has all
    notes: tuple[str, ...] = ()
    """Sentences on runs that are missing, or were computed with different data or plug-ins."""
    config: "Experiment | None" = None
    """None: all runs of the folders are shown."""
    explored: pl.DataFrame | None = None
    """With `--confirm`: `table` of the runs that are not shown, on which is chosen."""
    confirmed: str = ""
    """With `--confirm`: the runs that are shown, for example "data.seed 5 to 9"."""
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)  # numbers, by what they are of

    @property
    def name(self) -> str:
        """The name of the configuration that is shown, or of the latest one of the first folder."""
        if self.config is not None:
            return self.config.name
        names = [config["name"] for config in self.folders[0].read_configs().values() if "name" in config]
        return str(names[0]) if names else self.folders[0].path.name

    @cached_property
    def clients(self) -> pl.DataFrame:
        """The rows of clients of all runs, up to the last evaluation that is shown of their settings."""
        last = {run: setting.rounds[-1] for setting in self.settings for run in setting.runs}
        rows = read_rows("clients", [run for _, run in self.sources])
        return rows.filter(col("round") <= col("run").replace_strict(last, default=MAX_INT, return_dtype=pl.Int64))

    @cached_property
    def detection(self) -> pl.DataFrame:
        """The metrics `DETECTION` of each run that recorded its clients."""
        return detection(self.clients)

    @property
    def groups(self) -> list[GroupFolder]:
        """The groups in which the runs were computed."""
        return list(dict.fromkeys(run.group for _, run in self.sources))

    def metric(self, setting: Setting) -> Metric:
        """By which it is compared: the test accuracy, or the test loss if its data have none, as in a regression."""
        return self._metrics[setting.position]

    @cached_property
    def _metrics(self) -> dict[int, Metric]:
        has_accuracy = self.table.group_by("setting").agg(col("test_accuracy").is_finite().any())
        known = {position for position, is_known in has_accuracy.rows() if is_known}
        place = lambda setting: (setting.data, setting.scenario.data_values)  # two labels of one table, say
        classes = {place(setting) for setting in self.settings if setting.position in known}
        return {setting.position: ACCURACY if place(setting) in classes else LOSS for setting in self.settings}

    def with_metric(self, metric: Metric) -> list[Setting]:
        """The settings that are compared by this metric."""
        return [setting for setting in self.settings if self.metric(setting) == metric]

    def table_key(self, setting: Setting) -> tuple[str, Metric]:
        """Settings in which this is equal are in one table."""
        return setting.data, self.metric(setting)

    @cached_property
    def with_backdoor(self) -> list[Setting]:
        known = self.table.filter(col(BACKDOOR.name).is_finite())["setting"].unique()
        return [setting for setting in self.settings if setting.position in known]

    def missing_rounds(self, setting: Setting) -> int:
        """The rounds of its runs after the last one that is shown; 0 if they are complete."""
        return int(self.runs[setting.runs[0]]["server.num_rounds"] - setting.rounds[-1])

    def number(self, setting: Setting, metric: Metric | None = None) -> dict[str, Any]:
        """The row of a setting in `compare.compare` and `compare.count_runs`, by the metric of its data or another."""
        return self._numbers(self.table, metric or self.metric(setting))[setting.position]

    def basis(self, setting: Setting, metric: Metric) -> dict[str, Any]:
        """The same of the runs on which is chosen, those that are shown or the others."""
        table = self.table if self.explored is None else self.explored
        return self._numbers(table, metric)[setting.position]

    # For claims

    @property
    def has_splits(self) -> bool:
        """Whether the units of chance are splits: a data set has several of them."""
        return bool(self._with_splits)

    @cached_property
    def _with_splits(self) -> set[str]:
        """The data sets of which there are several splits."""
        splits = {(setting.data, split) for setting in self.settings for split in setting.splits}
        return {data for data, count in Counter(data for data, _ in splits).items() if count > 1}

    @cached_property
    def _keys(self) -> set[str]:
        return {*schema().fields, *chain.from_iterable(self.runs)}

    def find(self, **values: Any) -> Setting | None:
        """The setting with runs of these values, with dots of keys as two underscores; None: there is none.

        Keys have their short forms, too; plug-ins their names as they are shown or as the configuration has them.
        Raises `ConfigError` if there are several, or no such key.
        """
        wanted = {KEYS.get(key, key.replace("__", ".")): hashable(value) for key, value in values.items()}
        for key in wanted.keys() - self._keys:  # those with a dot may be of plug-ins that were not run
            if (match := nearest(key, self._keys, SURE)) or "." not in key:
                raise ConfigError(f"find: no key is called {key}{did_you_mean(match)}")
        with_all = set(range(len(self.runs))).intersection(*(self._runs_with(*item) for item in wanted.items()))
        matching = [setting for setting in self.settings if not with_all.isdisjoint(setting.runs)]
        if len(matching) > 1:
            named = ", ".join(f"{key} = {value}" for key, value in wanted.items())
            have = f" have {named}" if named else ""
            raise ConfigError(f"find: {len(matching)} settings{have}; add a key that tells them apart")
        return matching[0] if matching else None

    def _runs_with(self, key: str, value: Any) -> set[int]:
        """The runs with this value of a key, as it is shown or as the configuration has it."""
        if key not in self._known:
            self._known[key] = defaultdict(set)
            for run, (shown, (_, stored)) in enumerate(zip(self.runs, self.sources, strict=True)):
                for form in (shown.get(key), hashable(stored.keys.get(key))):
                    self._known[key][form].add(run)
        return self._known[key].get(value, set())

    def numbers(
        self, setting: Setting | None, metric: Metric | None = None, final: Final | str = LAST
    ) -> np.ndarray | None:
        """[P] means by split, or the seeds of a single split, of the final metric as it is shown; None of None.

        P are those of all settings on its data set, so that numbers of several can be subtracted: NaN where this one
        has none, as while its runs are incomplete. The metric is that of its data unless another is given.
        """
        if setting is None:
            return None
        values = self._finals(metric or self.metric(setting), parse(final))
        of_data = [other.position for other in self.settings if other.data == setting.data]
        every = values.filter(col("setting").is_in(of_data)).select(unit="run").unique().sort("unit")
        own = units(values.filter(col("setting") == setting.position))
        return every.join(own, on="unit", how="left", maintain_order="left")["value"].to_numpy().astype(float)

    def per_unit(self, setting: Setting, of_runs: Sequence[float | None]) -> np.ndarray:
        """The same of a number, or a bool, of each of `setting.runs`."""
        splits, seeds = zip(*setting.draws, strict=True)
        columns = {SPLIT: splits, "run": splits if setting.data in self._with_splits else seeds}
        values = pl.DataFrame({"setting": setting.position, **columns, "value": np.asarray(of_runs, float)})
        return units(values).sort("unit")["value"].to_numpy().astype(float)

    def difference(
        self,
        setting: Setting | None,
        reference: Setting | None,
        metric: Metric | None = None,
        final: Final | str = LAST,
    ) -> np.ndarray | None:
        """[P] differences of the final metric, run by run, by split or by seed; None if no pair of runs has both.

        None also while one of them is incomplete.
        """
        if setting is None or reference is None:
            return None
        values = self._finals(metric or self.metric(setting), parse(final))
        every = differences(values, [(setting, reference)])
        return every[0].values if every else None

    def _finals(self, metric: Metric, final: Final) -> pl.DataFrame:
        """`compare.finals`, whose runs are the splits or seeds, so that numbers are in their order.

        Values of incomplete runs are null.
        """
        if (metric, final) not in self._known:
            values = finals(self._with_metric(self.table, metric), metric, final)
            incomplete = [setting.position for setting in self.settings if self.missing_rounds(setting)]
            values = values.with_columns(value=pl.when(~col("setting").is_in(incomplete)).then("value"))
            of_splits = col("setting").is_in([s.position for s in self.settings if s.data in self._with_splits])
            self._known[metric, final] = values.with_columns(run=pl.when(of_splits).then(SPLIT).otherwise("seed"))
        return self._known[metric, final]

    def badness(self, setting: Setting, metric: Metric) -> tuple[int, float]:
        """Higher is worse, under an attack, on the runs on which is chosen: diverged runs, then the mean."""
        number = self.basis(setting, metric)
        return number["num_diverged"], math.inf if number["mean"] is None else -metric.sign * number["mean"]

    def worst(self, settings: Iterable[Setting], metric: Metric) -> Setting | None:
        return max(settings, key=lambda setting: self.badness(setting, metric), default=None)

    def mean(self, setting: Setting | None, metric: Metric) -> float:
        """NaN: there are no such runs, or all have diverged."""
        center = None if setting is None else self.number(setting, metric)["mean"]
        return math.nan if center is None else center

    def _numbers(self, table: pl.DataFrame, metric: Metric) -> dict[int, dict[str, Any]]:
        """By position of the setting, of `self.table` or `self.explored`."""
        key = id(table), metric
        if key not in self._known:
            values = finals(self._with_metric(table, metric), metric, self.final)
            joined = compare(values).join(count_runs(values), on="setting")
            self._known[key] = {row["setting"]: row for row in joined.iter_rows(named=True)}
        return self._known[key]

    def _with_metric(self, table: pl.DataFrame, metric: Metric) -> pl.DataFrame:
        """The table with the metric of whole runs in place of that of evaluations, if it is one."""
        of_runs = byzantine_excess(table) if metric == EXCESS else self.detection if metric in DETECTION else None
        if of_runs is None:
            return table
        return table.drop(metric.column, strict=False).join(of_runs, on="run", how="left", maintain_order="left")

    @property
    def has_choices(self) -> bool:
        """Whether numbers differ from the default report's: values are chosen, or other evaluations are shown."""
        return self.selection is not None or bool(self.confirmed) or self.final != LAST

    def is_own(self, out: RunFolder, baseline: str = BASELINE) -> bool:
        """Whether this is the default report of the run folder `out`: of its runs alone, without choices."""
        is_plain = self.config is None and baseline == BASELINE and not self.has_choices
        return is_plain and [folder.path.resolve() for folder in self.folders] == [out.path.resolve()]

    def check_destination(self, out: RunFolder, baseline: str = BASELINE) -> None:
        """Raises `ConfigError` if `out` is a run folder and this is not its default report, which would be lost."""
        if out.has_runs() and not self.is_own(out, baseline):
            raise ConfigError(
                "--out: must not be a run folder, whose default report would be overwritten by another one, "
                f"got {out.path}; choose a new folder"
            )

    @property
    def remarks(self) -> list[str]:
        """For figures and pages: what was chosen, and which runs are shown."""
        chosen = self.selection.sentence if self.selection else ""
        shown = f"Runs with {self.confirmed} are shown; choices were made on the others." if self.confirmed else ""
        return list(filter(None, (chosen, shown)))

    @property
    def choice_remark(self) -> str:
        """How what was chosen by its numbers is to be read."""
        confirmed = f"chosen on the other runs, shown for {self.confirmed}"
        return confirmed if self.confirmed else "chosen by these numbers (exploratory)"
