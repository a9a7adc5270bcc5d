"""The official files of CIFAR-100: 50,000 + 10,000 images of 32x32x3 in 100 classes, which form 20 superclasses.

A. Krizhevsky: "Learning Multiple Layers of Features from Tiny Images", 2009,
https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf. Digests are those of torchvision.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedsim.datasets import cifar10
from fedsim.datasets.download import Download
from fedsim.datasets.prepared import load
from fedsim.datasets.raw import RawDataset

ARCHIVE = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "md5", "eb9058c3a382ffc7106e4002c42a8d85"
)
BATCHES = {
    "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
    "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
}

SUPERCLASSES = {  # classes and superclasses are numbered alphabetically
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
_SUPERCLASS_OF = {label: i for i, labels in enumerate(SUPERCLASSES.values()) for label in labels.split()}
LABELS, COARSE_LABELS = sorted(_SUPERCLASS_OF), list(SUPERCLASSES)
COARSE = np.asarray([_SUPERCLASS_OF[label] for label in LABELS], np.int32)  # [100], the superclass of each class


def cifar100(
    seed: int, *, labels: Annotated[Literal["fine", "coarse"], "100 classes, or their 20 superclasses"] = "fine"
) -> RawDataset:
    """CIFAR-100, prepared."""
    raw = load("cifar100")
    if labels == "fine":
        return raw
    y, y_test, names = COARSE[raw.y], COARSE[raw.y_test], np.asarray(COARSE_LABELS)
    return replace(raw, y=y, y_test=y_test, num_classes=len(names), label_names=names)


def read(source: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [50,000 or 10,000, 32, 32, 3] uint8 and labels, by split, in the official order.

    `source` is the archive of the python version, or a folder with it, with its unpacked files or with these as `.xz`.
    Raises `DataError` if a file is missing or is not the official one.
    """
    return cifar10.read_pickles(source, "CIFAR-100", ARCHIVE, BATCHES, b"fine_labels")
