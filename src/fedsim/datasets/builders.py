"""TFDS builders of fedsim's data sets, from files on this machine to array_record, and running them.

With natural clients, a record is a client: `client_id`, its inputs `x` [m, ...] and labels `y` [m]. Labeled image sets
are in `image_builders`.

This module needs the extra `data`: import it inside functions, after `prepared.require_tfds`.
"""

import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from fedsim.config.registry import did_you_mean, nearest
from fedsim.core.types import InputKind
from fedsim.datasets import emnist, image_builders, leaf, shakespeare
from fedsim.datasets.natural_clients import ClientExamples
from fedsim.datasets.text import ALPHABET
from fedsim.errors import DataError


class _ClientBuilder(image_builders.FileBuilder, tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A data set with natural clients; subclasses say what its inputs and labels are."""

    VERSION = tfds.core.Version("1.0.0")
    DESCRIPTION: str
    INPUTS: InputKind
    SHAPE: tuple[int, ...]
    DTYPE: type
    LABELS: Sequence[str]

    def _info(self) -> Any:
        features = {
            "client_id": tfds.features.Text(),
            "x": tfds.features.Tensor(shape=(None, *self.SHAPE), dtype=self.DTYPE, encoding="zlib"),
            "y": tfds.features.Tensor(shape=(None,), dtype=np.int32, encoding="zlib"),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.DESCRIPTION,
            features=tfds.features.FeaturesDict(features),
            homepage="https://leaf.cmu.edu",
            metadata=tfds.core.MetadataDict(inputs=self.INPUTS, label_names=list(self.LABELS), num_examples={}),
        )

    def _generate_examples(self, split: str, examples: Iterator[ClientExamples]) -> Iterator[tuple[str, Any]]:
        num_examples = 0
        for i, (client, x, y) in enumerate(examples):
            if x.shape[1:] != self.SHAPE or x.dtype != self.DTYPE or not np.all((y >= 0) & (y < len(self.LABELS))):
                raise DataError(
                    f"{self.source}: inputs of client {client} of {self.name} must be {np.dtype(self.DTYPE)} "
                    f"{self.SHAPE} with labels 0 to {len(self.LABELS) - 1}, got {x.dtype} {x.shape[1:]}"
                )
            yield client, {"client_id": client, "x": x, "y": y.astype(np.int32)}
            num_examples += len(y)
            self.info.metadata["num_examples"][split] = num_examples
            self.progress(f"{split} records", i + 1, 0)

    def read(self) -> dict[str, Any]:
        """The clients by split, from a folder in LEAF's format."""
        return {split: leaf.read(self.source / split) for split in ("train", "test")}


class Femnist(_ClientBuilder, skip_registration=True):  # type: ignore[call-arg]
    """FEMNIST from the output folder of LEAF."""

    name = "femnist"
    DESCRIPTION = "FEMNIST (LEAF): handwritten digits and letters, each writer a client."
    INPUTS, SHAPE, DTYPE = "image", (28, 28, 1), np.uint8
    LABELS = emnist.LABELS["byclass"]


class Shakespeare(_ClientBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Shakespeare from the raw text, or from the output folder of LEAF."""

    name = "shakespeare"
    DESCRIPTION = "Shakespeare (LEAF): windows of 80 characters and the next one, each speaking role a client."
    INPUTS, SHAPE, DTYPE = "text", (shakespeare.WINDOW,), np.int8
    LABELS = ALPHABET

    def read(self) -> dict[str, Any]:
        """The raw text has no test set."""
        return super().read() if (self.source / "train").exists() else {"train": shakespeare.read(self.source)}


BUILDERS: dict[str, Callable[..., Any]] = image_builders.BUILDERS | {
    builder.name: builder for builder in (Femnist, Shakespeare)
}


def prepare(name: str, data_dir: Path, **files: Any) -> Path:
    """Prepares one of `BUILDERS` from its `source`, or a data set of TFDS, into `data_dir`; returns the folder.

    Works in a temporary folder, and then moves the result to its place. Raises `DataError` on failure, which keeps what
    was prepared before.
    """
    make_builder = partial(BUILDERS[name], **files) if files else partial(tfds.builder, name)
    tfds.disable_progress_bar()
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=data_dir, prefix=f".{name.replace('/', '-')}-") as temporary:
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # its messages repeat ours
                builder = make_builder(data_dir=temporary, file_format="array_record")
                builder.download_and_prepare(download_dir=data_dir / "downloads")
        except DataError:
            raise
        except tfds.core.DatasetNotFoundError:
            hint = did_you_mean(nearest(name, BUILDERS))
            raise DataError(f"{name}: no such data set in fedsim or tensorflow-datasets{hint}") from None
        except Exception as error:  # TFDS and its builders raise many types
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            remedy = "; install tensorflow" if isinstance(error, ImportError) else ""
            raise DataError(f"{name}: tensorflow-datasets cannot prepare it here ({reason}){remedy}") from None
        prepared = Path(builder.data_path)
        folder = data_dir / prepared.relative_to(temporary)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        prepared.rename(folder)
    return folder
