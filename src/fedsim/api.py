"""Experiments from Python in two lines: `load` one, `run` it, and look at its rows and figures."""

import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from fedsim.config.toml import Experiment
    from fedsim.report import Results
    from fedsim.runs.events import Observer
    from fedsim.runs.folder import RunFolder


def load(
    source: "str | Path | Mapping[str, Any]",
    *,
    budget: str | None = None,
    **overrides: Any,
) -> "Experiment":
    """The experiment in the TOML file `source`, or in nested tables of the same form.

    `budget` is one of its [budget.NAME]. `overrides` win over it, sweep included: a key's dots are written as two
    underscores, as in `server__num_rounds=10`, and a list sweeps, as in `seed=[0, 1, 2]`. Raises
    `fedsim.errors.ConfigError` where anything is wrong.
    """
    from fedsim.config import toml
    from fedsim.config.fields import toml as text_of
    from fedsim.engine import devices

    devices.one_per_core()  # before a user's own module, which may start JAX

    plain = lambda value: value.tolist() if hasattr(value, "tolist") else value  # NumPy's numbers and arrays
    text = lambda value: str(value) if isinstance(value, str | Path) else text_of(plain(value))

    given: dict[str, Any] = {}
    for name, value in overrides.items():
        key = name.replace("__", ".")
        if isinstance(plain(value), list | tuple | range):
            given[f"sweep.{key}"] = [text(one) for one in value]
        else:
            given[key] = text(value)
    if isinstance(source, Mapping):
        return toml.from_tables(source, given, budget=budget)
    return toml.read(Path(source), given, budget)


def run(
    experiment: "Experiment | str | Path | Mapping[str, Any]",
    *,
    out: str | Path | None = None,
    progress: "bool | Observer" = True,
    force: bool = False,
    mix: bool = False,
    extend: bool = False,
) -> "Result":
    """Runs the experiment (or what `load` makes one of) into the run folder `out` and returns its rows.

    `out` is runs/<name>-<hash> by default: what is there already is not run again, and what was interrupted goes on.
    `progress` shows a bar, or sees all events (`fedsim.runs.events`). `force` starts over; `mix` goes on with other
    versions or devices; `extend` adds those runs and rounds that `out` has not. Compiled programs are kept for later
    starts, in JAX's own cache folder if it has one (JAX_COMPILATION_CACHE_DIR), else in fedsim's. Warns of keys that
    have no effect, and where a rule is told more corrupted clients than its authors promise anything for. Raises what
    is in `fedsim.errors`.
    """
    from fedsim.cli.progress import progress as shown_progress
    from fedsim.config.toml import Experiment
    from fedsim.config.unused import unused
    from fedsim.engine import cache, devices, make_plan, run_plan

    if not isinstance(experiment, Experiment):
        experiment = load(experiment)
    devices.one_per_core()
    cache.keep_programs()
    plan = make_plan(experiment)
    for note in (*unused(experiment, plan.runs), *plan.notes):
        warnings.warn(note, stacklevel=2)
    path = Path(out) if out is not None else default_folder(experiment)
    if progress is True:
        with shown_progress(path) as observer:
            return Result(run_plan(plan, path, [observer], force=force, mix=mix, extend=extend))
    observers = [] if progress is False else [progress]
    return Result(run_plan(plan, path, observers, force=force, mix=mix, extend=extend))


def default_folder(experiment: "Experiment") -> Path:
    """Where an experiment's rows go: another configuration has another folder."""
    return Path("runs") / f"{experiment.name}-{experiment.digest()}"


class Result:
    """A complete run folder. Tables are pyarrow's: `.to_pandas()` makes them pandas', `polars.from_arrow` polars'."""

    def __init__(self, folder: "RunFolder | str | Path") -> None:
        from fedsim.runs.folder import RunFolder

        self.folder = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))

    @property
    def path(self) -> Path:
        """Of the folder."""
        return self.folder.path

    @cached_property
    def rounds(self) -> "pa.Table":
        """One row a run and evaluated round: accuracy, loss, and the share of the weight that corrupted clients got."""
        return self.folder.read("rounds")

    @cached_property
    def clients(self) -> "pa.Table":
        """One row a run, round and client of its cohort: its loss, weight and alpha."""
        return self.folder.read("clients")

    @cached_property
    def info(self) -> "pa.Table":
        """One row a run, round and number that the rule shows of itself."""
        return self.folder.read("info")

    @cached_property
    def summary(self) -> "pa.Table":
        """One row a cell, runs that differ in their seed alone: mean and deviation of the final accuracy, and more."""
        import pyarrow as pa

        from fedsim import report

        return pa.Table.from_pylist(report.summary(self._results))

    def figures(self) -> "dict[str, Figure]":
        """Every figure that the rows have something for, by name."""
        from fedsim import report

        return report.figures(self._results)

    def xarray(self) -> Any:
        """The rows of rounds as an `xarray.Dataset` with a dimension for each swept key."""
        from fedsim import report

        return report.as_xarray(self.folder)

    @cached_property
    def _results(self) -> "Results":
        from fedsim import report

        return report.read(self.folder)

    def __repr__(self) -> str:
        from fedsim import report

        return f"{report.markdown(report.accuracy_tables(self._results))}\n{self.path}"

    _repr_markdown_ = __repr__
