"""An experiment as jobs of a SLURM cluster, by submitit: the jobs share the groups of a run folder."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedsim.config.experiment import Experiment
from fedsim.config.toml import parse
from fedsim.config.values import Word, parse_words
from fedsim.engine import devices
from fedsim.engine.experiment import prepare, run_plan
from fedsim.engine.families import group_runs
from fedsim.errors import ConfigError, import_extra, pip_install
from fedsim.runs.folder import RunFolder
from fedsim.runs.trackers import make_trackers

LOCAL_MINUTES = 24 * 60
LISTS = ("setup", "teardown", "srun_args")  # settings that are lists of lines or arguments


def submit(
    experiment: Experiment, path: Path, settings: Mapping[str, str], options: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Submits jobs that run `experiment` into the folder `path`; returns their ids.

    `settings` are options of `sbatch` by submitit's names (partition, time, gpus_per_node, mem ...), and `jobs`, their
    number (default: one for each group of runs), and `cluster` (default "slurm"; "local" means processes of this
    machine). The first job that starts makes the plan, on its device. `options` are those of `run_job`. Raises
    `ConfigError` if a setting or a name in the experiment is unknown, and `RunFolderError` if `path` is of others.
    """
    submitit = import_extra("submitit", ConfigError, f"--slurm: needs submitit; {pip_install('slurm')}")
    values = {
        name: [text] if name in LISTS else parse_words(Word(text), int | bool | str) for name, text in settings.items()
    }
    runs = experiment.runs()  # raises where a name is unknown
    jobs, cluster = values.pop("jobs", len(group_runs(runs))), str(values.pop("cluster", "slurm"))
    if not isinstance(jobs, int) or jobs < 1:
        raise ConfigError(f"--slurm.jobs: must be an integer >= 1, got {jobs}")
    if cluster not in ("slurm", "local"):
        raise ConfigError(f"--slurm.cluster: must be slurm or local, got {cluster}")
    if cluster == "slurm" and "time" not in values:
        raise ConfigError("--slurm.time: must be given, in minutes, since jobs end after 5 by submitit's default")
    if (folder := RunFolder(path)).is_occupied():
        folder.check()
    make_trackers(path, options.get("log", ()))  # raises where a package is missing
    parameters = {f"slurm_{name}": value for name, value in values.items()}
    try:
        executor = submitit.AutoExecutor(folder=path / "slurm", cluster=cluster)
        executor.update_parameters(**({"timeout_min": LOCAL_MINUTES} if cluster == "local" else {}), **parameters)
        arguments = experiment.dump(), str(path.absolute()), dict(options)
        submitted = executor.map_array(run_job, *([argument] * jobs for argument in arguments))
    except (RuntimeError, ValueError, NameError, TypeError, OSError) as error:
        raise ConfigError(f"--slurm: {error}") from None
    return [str(job.job_id) for job in submitted]


def run_job(config: str, path: str, options: Mapping[str, Any]) -> None:
    """Makes the plan or takes that of the folder, and runs groups until none is left to start.

    `options` are those of `run_plan`, and `log`, the trackers, and `no_compile_cache`.
    """
    devices.use_one_per_core()  # before plug-ins are imported, which may start JAX
    run_options = dict(options)
    use_cache, trackers = not run_options.pop("no_compile_cache", False), run_options.pop("log", ())
    plan = prepare(parse(config), use_cache)
    run_plan(plan, Path(path), make_trackers(Path(path), trackers), wait=False, **run_options)
