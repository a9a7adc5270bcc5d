"""TFDS builders of fedsim's data sets, from files on this machine to array_record without TensorFlow, and running them.

A record is a client, with `client_id`, its inputs `x` [m, ...] and labels `y` [m], or a labeled image. MNIST,
Fashion-MNIST and both CIFARs are data sets of TFDS, with their names, versions and records. TFDS's EMNIST is
transposed, and its letters are incomplete and have 37 classes.

This module needs the extra `data`: import it inside functions, after `prepared.require_tfds`.
"""

import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image
from tensorflow_datasets.image_classification import cifar
from tensorflow_datasets.image_classification import mnist as tfds_mnist

from fedsim.config.registry import did_you_mean, nearest
from fedsim.core.types import InputKind
from fedsim.datasets import cifar10, cifar100, emnist, leaf, mnist, shakespeare
from fedsim.datasets.download import Progress
from fedsim.datasets.natural_clients import ClientExamples
from fedsim.datasets.text import ALPHABET
from fedsim.errors import DataError

VERSION = tfds.core.Version("1.0.0")


class _FileBuilder:
    """Mixin of TFDS builders that write what `read` returns. Comes before TFDS's builder among the base classes."""

    read: Callable[[Path], dict[str, Any]]
    """Reads the examples in the files at a path, by split."""

    def __init__(self, source: Path, progress: Progress, **kwargs: Any) -> None:
        self.source, self.progress = source, progress
        super().__init__(**kwargs)

    def _split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(split, part) for split, part in self.read(self.source).items()}


class _ImageBuilder(_FileBuilder):
    """Writes images [M, H, W, C] uint8 and labels [M]; `class_names` are by feature, if TFDS reads them from a file."""

    class_names: ClassVar[dict[str, Sequence[str]]] = {}

    def _split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        for feature, names in self.class_names.items():
            self.info.features[feature].names = names
        return super()._split_generators(dl_manager)

    def _generate_examples(
        self: Any, split: str, examples: tuple[np.ndarray, np.ndarray]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        features = self.info.features
        for i, (image, label) in enumerate(zip(*examples, strict=True)):
            fields = {"id": f"{split}_{i:05d}", "image": _encode_png(image), "label": int(label)}
            if "coarse_label" in features:
                fields["coarse_label"] = int(cifar100.COARSE[label])
            yield i, {name: value for name, value in fields.items() if name in features}  # MNIST has no ids
            self.progress(f"{split} records", i + 1, 0)


def _encode_png(image: np.ndarray) -> bytes:
    """An image [H, W, C] uint8 as PNG, in half the time of TFDS, which compresses more."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.squeeze())).save(file, "png", compress_level=1)
    return file.getvalue()


class _Emnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A split of EMNIST."""

    VERSION = VERSION

    def _info(self) -> Any:
        split = self.name.removeprefix("emnist_")
        features = {
            "id": tfds.features.Text(),
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(names=list(emnist.LABELS[split])),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"EMNIST {split}: handwritten characters, upright, labels from 0.",
            features=tfds.features.FeaturesDict(features),
            homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        )


class _Clients(_FileBuilder, tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A data set of LEAF with natural clients."""

    VERSION = VERSION
    description: str
    inputs: InputKind
    shape: tuple[int, ...]
    dtype: type
    class_names: Sequence[str]

    def _info(self) -> Any:
        features = {
            "client_id": tfds.features.Text(),
            "x": tfds.features.Tensor(shape=(None, *self.shape), dtype=self.dtype, encoding="zlib"),
            "y": tfds.features.Tensor(shape=(None,), dtype=np.int32, encoding="zlib"),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.description,
            features=tfds.features.FeaturesDict(features),
            homepage="https://leaf.cmu.edu",
            metadata=tfds.core.MetadataDict(inputs=self.inputs, label_names=list(self.class_names), num_examples={}),
        )

    def _generate_examples(self, split: str, examples: Iterator[ClientExamples]) -> Iterator[tuple[str, Any]]:
        num_examples = 0
        for i, (client, x, y) in enumerate(examples):
            if x.shape[1:] != self.shape or x.dtype != self.dtype or not np.all((y >= 0) & (y < len(self.class_names))):
                raise DataError(
                    f"{self.source}: inputs of client {client} of {self.name} must be {np.dtype(self.dtype)} "
                    f"{self.shape} with labels 0 to {len(self.class_names) - 1}, got {x.dtype} {x.shape[1:]}"
                )
            yield client, {"client_id": client, "x": x, "y": y.astype(np.int32)}
            num_examples += len(y)
            self.info.metadata["num_examples"][split] = num_examples
            self.progress(f"{split} records", i + 1, 0)


def _read_leaf(source: Path) -> dict[str, Any]:
    return {split: leaf.read(source / split) for split in ("train", "test")}


def _read_shakespeare(source: Path) -> dict[str, Any]:
    """The raw text has no test set; the output folder of LEAF does."""
    return _read_leaf(source) if (source / "train").exists() else {"train": shakespeare.read(source)}


def _make(name: str, bases: tuple[Any, ...], read: Callable[[Path], dict[str, Any]], **members: Any) -> Any:
    """The builder of the data set `name`, from the files that `read` reads."""
    members |= {"__module__": __name__, "name": name, "read": staticmethod(read)}
    return type(name.title().replace("_", ""), bases, members, skip_registration=True)


_BUILDERS = (
    _make("cifar10", (_ImageBuilder, cifar.Cifar10), cifar10.read, class_names={"label": cifar10.LABELS}),
    _make(
        "cifar100",
        (_ImageBuilder, cifar.Cifar100),
        cifar100.read,
        class_names={"label": cifar100.LABELS, "coarse_label": cifar100.COARSE_LABELS},
    ),
    _make("mnist", (_ImageBuilder, tfds_mnist.MNIST), partial(mnist.read, "mnist")),
    _make("fashion_mnist", (_ImageBuilder, tfds_mnist.FashionMNIST), partial(mnist.read, "fashion_mnist")),
    *(_make(f"emnist_{split}", (_ImageBuilder, _Emnist), partial(emnist.read, split)) for split in emnist.LABELS),
    _make(
        "femnist",
        (_Clients,),
        _read_leaf,
        description="FEMNIST (LEAF): handwritten digits and letters, each writer a client.",
        inputs="image",
        shape=(28, 28, 1),
        dtype=np.uint8,
        class_names=emnist.LABELS["byclass"],
    ),
    _make(
        "shakespeare",
        (_Clients,),
        _read_shakespeare,
        description="Shakespeare (LEAF): windows of 80 characters and the next one, each speaking role a client.",
        inputs="text",
        shape=(shakespeare.WINDOW,),
        dtype=np.int8,
        class_names=ALPHABET,
    ),
)
BUILDERS = {builder.name: builder for builder in _BUILDERS}


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
