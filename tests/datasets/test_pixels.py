"""Images in memory of any type: their scale and their axes, against the pixels divided by 255."""

import numpy as np
import pytest

import fedsim
from fedsim.datasets.scales import scale_notes
from fedsim.errors import DataError

RNG = np.random.default_rng(0)
Y = np.array([0, 1, 2, 0, 1, 2])
PIXELS = RNG.integers(0, 256, (6, 8, 8, 1), np.uint8)
PIXELS.flat[0] = 255


def as_models_see(x):
    """The inputs as models see them."""
    return x.astype(np.float64) / (255 if x.dtype == np.uint8 else 1)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", ">i4", "i8", "u8", "f2", "f4", ">f8", "longdouble"])
def test_pixels_of_any_type_are_scaled(dtype):
    dataset = fedsim.from_arrays(PIXELS.astype(dtype), Y, None, PIXELS.astype(dtype), Y)
    np.testing.assert_array_equal(as_models_see(dataset.train.x), PIXELS / 255)
    np.testing.assert_array_equal(as_models_see(dataset.x_test), PIXELS / 255)


@pytest.mark.parametrize("inputs", [None, "vector"])
def test_counts_that_are_no_images_are_noted(inputs):
    """[M, T, F], or [M, T, F, G] that the user calls vectors, are used as they are."""
    counts = PIXELS.astype(int)[..., 0] if inputs is None else PIXELS.astype(int)
    dataset = fedsim.from_arrays(counts, Y, inputs=inputs, test_fraction=0.2)
    assert set(np.unique(dataset.train.x)) <= set(np.unique(PIXELS))
    assert dataset.train.x.dtype != np.uint8
    assert ["inputs are 0 to 255, and are used as they are" in note for note in scale_notes(dataset)] == [True]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (PIXELS.astype(np.uint16) * 257, PIXELS / 255),
        (PIXELS / 255, PIXELS / 255),
        (PIXELS / 100 - 1, PIXELS / 100 - 1),
        (PIXELS - 123.68, PIXELS - 123.68),
        (PIXELS // 16, PIXELS // 16 / 255),
        ((PIXELS // 16).astype(float), PIXELS // 16),
        (PIXELS.astype(np.int64) % 3 - 1, PIXELS % 3 - 1.0),
        (PIXELS > 99, PIXELS > 99),
        (np.ones((6, 3, 3, 3)), np.ones((6, 3, 3, 3))),
        (np.ones((6, 1, 9, 2)), np.ones((6, 1, 9, 2))),
    ],
)
def test_images_keep_their_scale(images, expected):
    np.testing.assert_allclose(
        as_models_see(fedsim.from_arrays(images, Y, None, images, Y).train.x), expected, atol=1e-6
    )


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (PIXELS * 0.7 + 40, "got float64 of 40 to 218.5; divide them"),
        (PIXELS.astype(np.int64) * 16, "got int64 of 0 to 4080; divide them"),
        (PIXELS.astype(np.int16) - 128, "got int16 of .* to 127; divide them"),
        (np.ones((6, 4, 8, 8)), r"\[M, height, width, channels\], got \(6, 4, 8, 8\); .*np\.moveaxis"),
        (PIXELS.reshape(6, 1, 8, 8), r"\[M, height, width, channels\], got \(6, 1, 8, 8\); .*np\.moveaxis\(x, 1, -1\)"),
        (np.ones((6, 3, 32, 48)), r"got \(6, 3, 32, 48\); .*np\.moveaxis\(x, 1, -1\)"),
    ],
)
def test_images_of_unknown_scale_or_axes_raise(images, message):
    with pytest.raises(DataError, match=message):
        fedsim.from_arrays(images, Y)


def test_the_scales_of_both_parts_must_be_known():
    with pytest.raises(DataError, match="got float64 and uint8 of 0 to 255"):
        fedsim.from_arrays(PIXELS, Y, None, PIXELS / 255, Y)
    dark = fedsim.from_arrays(PIXELS.astype(int), Y, None, PIXELS.astype(float) // 100, Y)
    np.testing.assert_array_equal(as_models_see(dark.x_test), PIXELS // 100 / 255)
