"""TFDS builders of labeled image sets, from files on this machine, without TensorFlow.

All but EMNIST are data sets of TFDS, with their names, versions and records. TFDS's EMNIST is transposed, and its
letters are incomplete and have 37 classes.

This module needs the extra `data`: import it inside functions, after `prepared.require_tfds`.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image
from tensorflow_datasets.image_classification import cifar
from tensorflow_datasets.image_classification import mnist as tfds_mnist

from fedsim.datasets import cifar10, cifar100, emnist, mnist
from fedsim.datasets.download import Progress


def encode_png(image: np.ndarray) -> bytes:
    """An image [H, W, C] uint8 as PNG, in half the time of TFDS, which compresses more."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.squeeze())).save(file, "png", compress_level=1)
    return file.getvalue()


class FileBuilder:
    """Mixin of TFDS builders that write what `read` returns. Comes before TFDS's builder among the base classes."""

    def __init__(self, source: Path, progress: Progress, **kwargs: Any) -> None:
        self.source, self.progress = source, progress
        super().__init__(**kwargs)

    def _split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(split, examples) for split, examples in self.read().items()}

    def read(self) -> dict[str, Any]:
        """The examples in the files at `self.source`, by split; subclasses define it."""
        raise NotImplementedError


class _ImageBuilder(FileBuilder):
    """Writes images [M, H, W, C] uint8 and labels [M]."""

    LABELS: ClassVar[dict[str, Sequence[str]]] = {}
    """Names of the classes by feature, if TFDS reads them from a file."""

    def _split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        for feature, names in self.LABELS.items():
            self.info.features[feature].names = names
        splits: dict[str, Any] = super()._split_generators(dl_manager)
        return splits

    def _generate_examples(
        self: Any, split: str, examples: tuple[np.ndarray, np.ndarray]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for i, (image, label) in enumerate(zip(*examples, strict=True)):
            fields = self.make_fields(f"{split}_{i:05d}", int(label))
            yield i, {"image": encode_png(image)} | fields
            self.progress(f"{split} records", i + 1, 0)

    def make_fields(self, name: str, label: int) -> dict[str, Any]:
        """Fields of a record besides the image."""
        return {"id": name, "label": label}


class Cifar10(_ImageBuilder, cifar.Cifar10, skip_registration=True):  # type: ignore[call-arg]
    """CIFAR-10 from the official archive, python or binary, or its unpacked files."""

    name = "cifar10"
    LABELS: ClassVar = {"label": cifar10.LABELS}

    def read(self) -> dict[str, Any]:
        """The official examples."""
        return cifar10.read(self.source)


class Cifar100(_ImageBuilder, cifar.Cifar100, skip_registration=True):  # type: ignore[call-arg]
    """CIFAR-100 from the official archive, or its unpacked files."""

    name = "cifar100"
    LABELS: ClassVar = {"label": cifar100.LABELS, "coarse_label": cifar100.COARSE_LABELS}

    def read(self) -> dict[str, Any]:
        """The official examples."""
        return cifar100.read(self.source)

    def make_fields(self, name: str, label: int) -> dict[str, Any]:
        """With the superclass."""
        return super().make_fields(name, label) | {"coarse_label": int(cifar100.COARSE[label])}


class Mnist(_ImageBuilder, tfds_mnist.MNIST, skip_registration=True):  # type: ignore[call-arg]
    """MNIST from the four official files."""

    name = "mnist"

    def read(self) -> dict[str, Any]:
        """The official examples."""
        return mnist.read(self.name, self.source)

    def make_fields(self, name: str, label: int) -> dict[str, Any]:
        """The label alone."""
        return {"label": label}


class FashionMnist(_ImageBuilder, tfds_mnist.FashionMNIST, skip_registration=True):  # type: ignore[call-arg]
    """Fashion-MNIST from the four official files."""

    name = "fashion_mnist"
    read = Mnist.read
    make_fields = Mnist.make_fields


class Emnist(_ImageBuilder, tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """One split of EMNIST, which subclasses name, from the official archive or its unpacked files."""

    VERSION = tfds.core.Version("1.0.0")
    split: str

    def read(self) -> dict[str, Any]:
        """The official examples of the split."""
        return emnist.read(self.split, self.source)

    def _info(self) -> Any:
        features = {
            "id": tfds.features.Text(),
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(names=list(emnist.LABELS[self.split])),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"EMNIST {self.split}: handwritten characters, upright, labels from 0.",
            features=tfds.features.FeaturesDict(features),
            homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        )


def _make_emnist(split: str) -> Any:
    members = {"name": f"emnist_{split}", "split": split}
    return type(f"Emnist{split.title()}", (Emnist,), members, skip_registration=True)


_BUILDERS: list[Any] = [Cifar10, Cifar100, Mnist, FashionMnist, *map(_make_emnist, emnist.LABELS)]
BUILDERS = {builder.name: builder for builder in _BUILDERS}
