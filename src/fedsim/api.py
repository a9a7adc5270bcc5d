"""Experiments from Python: `load` one, `run` it, and use its tables and figures."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.core.types import FederatedDataset
from fedsim.errors import ConfigError, FedsimError, python_options
from fedsim.runs.callbacks import Callback

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from matplotlib.figure import Figure

    from fedsim.config.experiment import Experiment
    from fedsim.engine.trained import TrainedModel
    from fedsim.report import Results
    from fedsim.runs.folder import RunFolder, StoredRun


def load(
    source: "str | Path | Mapping[str, Any]",
    *,
    data: FederatedDataset | None = None,
    preset: str | None = None,
    **overrides: Any,
) -> "Experiment":
    """Loads an experiment from the TOML file `source`, or from nested tables of the same form.

    `overrides` win over the configuration and its sweep. Dots of keys are written as two underscores, as in
    `server__num_rounds=10`. A list is one value of a key that takes a list; `fedsim.sweep` gives several values of any
    key, here and in tables. NumPy scalars and arrays and paths are accepted, and "default" restores a key's default.
    `data` is a data set in memory, as `fedsim.from_arrays` and its like return it, in place of `data.name`;
    its clients are used unless `data__partition` divides its examples anew (a warning says if the configuration has
    another partition), and if it has only one client, they are divided as the configuration says. A run folder resumes
    only with equal data. `preset` is the NAME of one of the [preset.NAME] tables. Raises `fedsim.errors.ConfigError` if
    anything is wrong.

    >>> tables = {"server": {"aggregator": "arfl", "num_rounds": 20}}
    >>> experiment = fedsim.load(tables, arfl__lam=fedsim.sweep([0.1, 1.0]), seed=fedsim.sweep(range(3)))
    >>> len(experiment.runs())
    6
    """
    from fedsim.config import toml
    from fedsim.engine import devices

    devices.use_one_per_core()  # before plug-ins are imported, which may start JAX
    given = changes = {name if "." in name else name.replace("__", "."): value for name, value in overrides.items()}
    python_name = lambda key: key.replace(".", "__") if key in given else "data"
    if data is not None:
        if not isinstance(data, FederatedDataset):
            of = "fedsim.from_arrays or fedsim.from_pandas"
            raise ConfigError(f"data: must be a data set of {of}, got {type(data).__name__}")
        for name, key in (("root", "root_examples"), ("validation", "validation_fraction")):
            if getattr(data, name) is not None:
                raise ConfigError(f"data: must have no {name} examples; data__{key} holds them out")
        for name, key in (("corrupted", "corruption"), ("malicious", "attack")):
            if (clients := getattr(data.train, name)) is not None and clients.any():
                raise ConfigError(f"data: must have no {name} clients; {key}__clients chooses them")
        for key in ("arrays.path", "data.name"):
            if key in given:
                raise ConfigError(f"{key}: must be left out with a data set in memory, got {given[key]!r}")
        changes = {"data.name": "arrays", "arrays.path": ""} | given
    if not isinstance(source, str | Path | Mapping):
        raise ConfigError(f"source: must be a TOML file, or tables in a dict, got {source!r}")
    if isinstance(source, str) and "\n" in source:
        raise ConfigError(
            "source: must be a TOML file, or tables in a dict, got text; tomllib.loads makes tables of it"
        )
    config = Path(source) if isinstance(source, str) else source

    def read(changes: Mapping[str, Any]) -> "Experiment":
        experiment = toml.read(config, changes, preset, python_name, where="")
        return replace(experiment, data=data, overridden=experiment.overridden & given.keys())

    key = "data.partition"
    if data is None or data.num_clients == 1 or key in changes:
        return read(changes)
    experiment = read(changes | {key: "natural"})
    with suppress(ConfigError):  # other keys may be possible with the data's clients only
        configured = read(changes)
        partitions = [values[key] for values in (configured.values, *configured.sweep) if key in values]
        if partitions not in ([], ["natural"]):
            text = f"{key} of the configuration is not used, since the data set has clients; data__partition divides it"
            warnings.warn(text, stacklevel=2)
    return experiment


def run(
    experiment: "Experiment | str | Path | Mapping[str, Any]",
    *,
    out: str | Path | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    force: bool = False,
    allow_mismatch: bool = False,
) -> "Result":
    """Runs the experiment, or what `load` accepts, into the run folder `out` and returns its results.

    `out` is runs/<name>-<hash> by default; it gets the tables that the command writes (summary.csv, table.md, ...), but
    no figures, which take a second: `Result.figures`. Only runs and rounds that `out` lacks are computed: the same call
    resumes an interrupted one, and other seeds, rules or more rounds are added. The results are of all that `out` has
    then. `progress` shows a bar. `callbacks` see all evaluations, and may stop the experiment (`fedsim.Callback`).
    `force` computes all runs again; `allow_mismatch` computes missing ones with other versions, devices, data or
    plug-ins. In a script that has called `jax.distributed.initialize`, all processes are one run: process 0 writes, and
    an error of one process ends all. Compiled programs are cached in JAX_COMPILATION_CACHE_DIR, or else in fedsim's
    cache folder. Warns about keys without effect, and about rules that assume more Byzantine clients than their
    authors' guarantees cover. Raises errors of `fedsim.errors`.

    >>> tables = {"server": {"aggregator": "fedavg", "num_rounds": 2, "eval_every": 1}, "mlp": {"hidden_sizes": [8]}}
    >>> result = fedsim.run(tables, out="runs/example", progress=False)
    >>> result.rounds["round"].to_list()
    [0, 1, 2]
    """
    from fedsim import report
    from fedsim.config.experiment import Experiment
    from fedsim.engine import prepare, processes, run_plan
    from fedsim.terminal import show_progress
    from fedsim_launcher import find_conflict

    with python_options():
        if conflict := find_conflict():
            raise FedsimError(conflict)
        if not isinstance(experiment, Experiment):
            experiment = load(experiment)
        given = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
        for callback in given:
            if callback is callbacks or not isinstance(callback, Callback):
                raise ConfigError(f"callbacks: must be a list of fedsim.Callback objects, got {callback!r}")
        plan = prepare(experiment)
        for message in (*plan.warnings, *plan.notes):
            warnings.warn(message, stacklevel=2)
        path = Path(out) if out is not None else default_folder(experiment)
        is_shown = progress and processes.is_primary()
        with show_progress(path, plan.runs) if is_shown else nullcontext() as bar:
            shown = [*given, bar] if bar is not None else given
            folder = run_plan(plan, path, shown, force=force, allow_mismatch=allow_mismatch)
        if processes.is_primary():
            results = report.load(folder)
            report.write(results, folder, has_figures=False)
            for problem in report.claims_tables(results)[1]:
                warnings.warn(problem, stacklevel=2)
        processes.wait_for_all()
        return Result(folder)


def default_folder(experiment: "Experiment") -> Path:
    """The run folder of an experiment if none is given; it differs for every configuration."""
    return Path("runs") / f"{experiment.name}-{experiment.digest()}"


class Result:
    """The results in a run folder, which may stand for its path.

    Tables are polars data frames; `to_pandas()` needs pandas and pyarrow.
    """

    def __init__(self, folder: "RunFolder | str | Path") -> None:
        from fedsim.runs.folder import RunFolder

        self.folder = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.folder.path

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The configuration of each run, by dotted key; rows have its position as "run".

        Keys that do not change the run, such as `name`, have their defaults.
        """
        return [run.keys for run in self._stored]

    @cached_property
    def rounds(self) -> "pl.DataFrame":
        """One row per run and evaluated round: accuracy, loss, and the total weight of corrupted clients."""
        return self._read("rounds")

    @property
    def table(self) -> "pl.DataFrame":
        """`rounds` with all keys of each run as columns, such as `client.learning_rate`, and the data set's name."""
        return self._results.table

    @cached_property
    def clients(self) -> "pl.DataFrame":
        """One row per run, round and client of the cohort: its loss, weight and alpha.

        If the rule keeps an alpha, evaluated rounds and a round 0 have all clients. If clients have names, these are in
        the column "client_name".
        """
        return self._read("clients")

    @cached_property
    def info(self) -> "pl.DataFrame":
        """One row per run, round and quantity that the rule reports, or that is measured on the test examples.

        The latter are a task's `Metrics.named`, `class_accuracy/<name>` (`record.classes`) and `personal_accuracy`.
        """
        return self._read("info")

    @property
    def seconds(self) -> tuple[float, float]:
        """How long compiling and running took, sums over the groups of runs that are complete."""
        completions = [group.read_completion() for group in self.folder.groups()]
        return sum(done.seconds_compiling for done in completions), sum(done.seconds_running for done in completions)

    def model(self, run: int, data: FederatedDataset | None = None) -> "TrainedModel":
        """The final model of `runs[run]` with its data; needs `record.models`.

        Called with inputs, it returns outputs such as logits: `model(model.dataset.x_test)`. `data` is the data set
        that `fedsim.load` got, if it got one.
        """
        from fedsim.engine.trained import load_model

        return load_model(self._stored_run(run), data)

    def data(self, run: int) -> "dict[str, np.ndarray]":
        """The training data of `runs[run]` by name, with corrupted values; needs `record.data`."""
        return self._stored_run(run).read_data()

    @cached_property
    def summary(self) -> "pl.DataFrame":
        """One row per setting, averaged over seeds: mean and standard deviation of the final accuracy, and more."""
        import polars as pl

        from fedsim import report

        return pl.DataFrame(report.summary(self._results), infer_schema_length=None)

    def figures(self) -> "dict[str, Figure]":
        """All figures that the results allow, by name."""
        from fedsim import report

        return report.figures(self._results)

    @cached_property
    def _stored(self) -> "list[StoredRun]":
        return self.folder.runs()

    def _stored_run(self, run: int) -> "StoredRun":
        if not isinstance(run, Integral) or run not in range(-len(self._stored), len(self._stored)):
            raise ConfigError(f"run: must be a position in `runs`, which has {len(self._stored)}, got {run!r}")
        return self._stored[run]

    def _read(self, kind: str) -> "pl.DataFrame":
        """The rows of all runs, with a column for each swept key."""
        from fedsim.runs.privacy import with_epsilon
        from fedsim.runs.sweep import append_swept_columns

        rows = self.folder.read(kind, self._stored)
        return append_swept_columns(with_epsilon(rows) if kind == "info" else rows, self.runs)

    @cached_property
    def _results(self) -> "Results":
        from fedsim import report

        return report.load(self.folder)

    def __repr__(self) -> str:
        from fedsim import report

        return f"{report.markdown(report.accuracy_tables(self._results))}\n{self.path}"

    def _repr_markdown_(self) -> str:
        """The table, and the curves of the test metric, for notebooks."""
        import base64
        import io

        image = io.BytesIO()
        figures = self.figures()
        name = next(iter(figures))  # the accuracy, or the loss of a regression
        figures[name].savefig(image, format="png", bbox_inches="tight")
        return f"{self!r}\n\n![{name}](data:image/png;base64,{base64.b64encode(image.getvalue()).decode()})\n"
