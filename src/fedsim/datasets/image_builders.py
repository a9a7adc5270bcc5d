"""TFDS builders of labeled image sets, from files on this machine, without TensorFlow.

All but EMNIST are data sets of TFDS, with their names, versions and records. TFDS's EMNIST is transposed, and its
letters are incomplete and have 37 classes.

This module needs the extra `data`: import it inside functions, after `prepared.require_tfds`.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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

    read: Callable[[], dict[str, Any]]
    """Reads the examples in the files at `source`, by split."""

    def __init__(self, source: Path, progress: Progress, **kwargs: Any) -> None:
        self.source, self.progress = source, progress
        super().__init__(**kwargs)

    def _split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(split, examples) for split, examples in self.read().items()}


class _ImageBuilder(FileBuilder):
    """Writes images [M, H, W, C] uint8 and labels [M]."""

    LABELS: ClassVar[dict[str, Sequence[str]]] = {}
    """Names of the classes by feature, if TFDS reads them from a file."""

    def _split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
        for feature, names in self.LABELS.items():
            self.info.features[feature].names = names
        return super()._split_generators(dl_manager)

    def _generate_examples(
        self: Any, split: str, examples: tuple[np.ndarray, np.ndarray]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        features = self.info.features
        for i, (image, label) in enumerate(zip(*examples, strict=True)):
            fields = {"id": f"{split}_{i:05d}", "image": encode_png(image), "label": int(label)}
            if "coarse_label" in features:
                fields["coarse_label"] = int(cifar100.COARSE[label])
            yield i, {name: value for name, value in fields.items() if name in features}  # MNIST has no ids
            self.progress(f"{split} records", i + 1, 0)


class _Emnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A split of EMNIST."""

    VERSION = tfds.core.Version("1.0.0")

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


def _make(name: str, base: Any, decode: Callable[[Path], dict[str, Any]], **labels: Sequence[str]) -> Any:
    """The builder of the data set `name` with the features of `base`, from the files that `decode` reads."""
    read = lambda builder: decode(builder.source)
    members = {"__module__": __name__, "name": name, "read": read, "LABELS": labels}
    return type(name.title().replace("_", ""), (_ImageBuilder, base), members, skip_registration=True)


BUILDERS = {
    "cifar10": _make("cifar10", cifar.Cifar10, cifar10.read, label=cifar10.LABELS),
    "cifar100": _make(
        "cifar100", cifar.Cifar100, cifar100.read, label=cifar100.LABELS, coarse_label=cifar100.COARSE_LABELS
    ),
    "mnist": _make("mnist", tfds_mnist.MNIST, partial(mnist.read, "mnist")),
    "fashion_mnist": _make("fashion_mnist", tfds_mnist.FashionMNIST, partial(mnist.read, "fashion_mnist")),
} | {f"emnist_{split}": _make(f"emnist_{split}", _Emnist, partial(emnist.read, split)) for split in emnist.LABELS}
