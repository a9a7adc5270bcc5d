"""The final model of a run, with what it computes and the data that it was trained and tested with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import jax
import numpy as np

from fedsim.config.components import forget_plugins, unflatten
from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset, Variables
from fedsim.engine import devices
from fedsim.engine.data import load_dataset
from fedsim.engine.environment import dataset_digest
from fedsim.engine.factories import model_files
from fedsim.engine.model import make_task, model_shapes
from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.keys import hashable
from fedsim.runs.arrays import by_path, from_paths
from fedsim.runs.folder import StoredRun

BATCH_SIZE = 1024


@dataclass(frozen=True)
class TrainedModel:
    """The final model of a run; call it with inputs like those of `dataset`."""

    variables: Variables = field(repr=False)
    """Its arrays, as the model's own function takes them."""
    dataset: FederatedDataset = field(repr=False)
    """The clean data of the run, with `x_test` and `y_test`."""
    config: Config
    """The run's configuration."""

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Outputs [M, ...] of the model in evaluation, such as logits, for inputs `x` [M, *feature].

        Raises `ConfigError` if the model is a `Task` without `outputs`, and `ValueError` for other inputs.
        """
        x, feature = np.asarray(x), self.dataset.spec.shape
        if x.shape[1:] != feature or not len(x):
            raise ValueError(f"x: must have the shape [M, {', '.join(map(str, feature))}], got {list(x.shape)}")
        dtype = np.dtype(self.dataset.spec.dtype)
        if dtype.kind in "iu":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            got = f"{x.min()} to {x.max()}" if x.dtype.kind in "iu" else x.dtype
            if x.dtype.kind not in "iu" or x.min() < low or x.max() > high:
                wanted = f"whole numbers from {low} to {high}, as `dataset.x_test` has them"
                raise ValueError(f"x: must be {wanted}, got {got}")
        parts = (x[start : start + BATCH_SIZE] for start in range(0, len(x), BATCH_SIZE))
        cast = lambda part: part.astype(dtype)
        return np.concatenate([np.asarray(self._outputs(self.variables, cast(part))) for part in parts])

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Its arrays by name, such as "Dense_0/kernel"; beside adapters also those that they are added to."""
        others = {} if self.config.adapter.rank is None else make_task(self.config, self.dataset).frozen
        return {name: np.asarray(array) for name, array in (others | by_path(self.variables)).items()}

    @cached_property
    def _outputs(self) -> Callable[[Variables, np.ndarray], jax.Array]:
        outputs = make_task(self.config, self.dataset).outputs
        if outputs is None:
            raise ConfigError(
                f"model.name: {self.config.model.name} is a Task without `outputs`; give it that function"
            )
        return jax.jit(outputs)


def load_model(run: StoredRun, data: FederatedDataset | None = None) -> TrainedModel:
    """The final model of a stored run; `data` is the data set that the run was given, if it was given one.

    Raises `RunFolderError` if the run is incomplete or the model was not saved, and `ConfigError` if the data, the
    plug-in of the model or the arrays that it started with are other ones than in the run.
    """
    arrays = run.read_model()
    if not run.is_complete:  # the model is of fewer rounds, since the run got more
        raise RunFolderError(f"{run.group.path}: the run is incomplete; run its configuration again to resume")
    devices.use_one_per_core()  # runs that follow are computed as if they came first
    forget_plugins()
    config = unflatten({key: hashable(value) for key, value in run.keys.items()})
    if data is None and run.keys.get("arrays.path") == "":
        raise ConfigError("data: must be the data set in memory that `fedsim.load` got, but is missing")
    for key, (name, digest) in model_files(config).items():
        if run.group.record.files.get(name) != digest:
            raise ConfigError(f"{key}: {name} has changed since the run; restore it")
    dataset = load_dataset(config, data)
    if dataset_digest(dataset) != run.group.record.data:
        raise ConfigError("data: must be the data set of the run, but other examples were loaded")
    return TrainedModel(from_paths(arrays, model_shapes(config, dataset)), dataset, config)
