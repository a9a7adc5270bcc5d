"""Faulty corruptions, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import Corruption, DataSpec
from fedsim.core.corrupt import example_owners, require_classes
from fedsim.core.draws import draw_rows
from fedsim.core.trees import expand_like
from fedsim.testing import check_corruption

VECTORS = DataSpec("vector", 3, (5,), "float32")


def field(name, f, of_all=False, changed_fields=None, validate=lambda spec: None):
    """A corruption that replaces a field of corrupted clients, or of all, by `f(key, values, spec)`."""

    def apply(data, corrupted, spec, key):
        values = getattr(data, name)
        corrupted_mask = corrupted if name in ("num_examples", "offsets") else corrupted[example_owners(data)]
        changed = f(key, values, spec)
        return data._replace(
            **{name: changed if of_all else jnp.where(expand_like(corrupted_mask, values), changed, values)}
        )

    return Corruption(apply, frozenset({name} if changed_fields is None else changed_fields), validate)


def reject_all(spec):
    raise ValueError("data: must be other data")


def next_class(key, y, spec):
    return (y + 1) % max(spec.num_classes, 1)


def branch_in_python(data, corrupted, spec, key):
    return data if bool(corrupted.any()) else data._replace()


def with_trigger(f):
    return Corruption(lambda data, corrupted, spec, key: data, trigger=lambda x, y, spec: f(x, y))


def shifted_by_padding():
    """Adds a random number to each pixel of corrupted clients, and 1 more where there is padding, of client 5."""

    def apply(data, corrupted, spec, key):
        x = data.x + jax.random.bits(key, data.x.shape, jnp.uint8).astype(data.x.dtype)
        return data._replace(x=jnp.where(expand_like(corrupted[example_owners(data)], x), x, data.x))

    def change_inputs(x, positions, owners, corrupted, spec, key):
        noise = draw_rows(partial(jax.random.bits, dtype=jnp.uint8), key, positions, x.shape[1:])
        noisy = x + noise.astype(x.dtype) + (jnp.max(owners) == 5).astype(x.dtype)
        return jnp.where(expand_like(corrupted[owners], x), noisy, x)

    return Corruption(apply, frozenset({"x"}), change_inputs=change_inputs)


def randomize(x, y):
    return (x * np.random.rand()).astype(x.dtype), y  # noqa: NPY002


FAULTY = [
    ("validate", field("y", next_class, validate=reject_all), "must accept some kind of data"),
    (
        "changed_fields",
        field("y", next_class, changed_fields={"y", "offsets"}),
        r"changed_fields must be among x, y, num_examples, got \['offsets'\]",
    ),
    ("jit", Corruption(branch_in_python), "TracerBoolConversionError"),
    (
        "shapes",
        field("x", lambda key, x, spec: x / 2, of_all=True),
        r"with images x must be uint8\[19, 4, 4, 1\], got float32",
    ),
    ("validate", Corruption(lambda key, data, corrupted, spec: data), "apply: key must be its last argument"),
    ("other_fields", field("y", next_class, changed_fields={"x"}), "with images y must not change"),
    ("benign_clients", field("y", next_class, of_all=True), "with images y of benign clients must not change"),
    (
        "no_corrupted_clients",
        field("x", lambda key, x, spec: 255 - x, of_all=True),
        "with images and no corrupted clients nothing must change",
    ),
    ("labels", field("y", lambda key, y, spec: y + 1), "with images labels must be from 0 to 2, got 0 to 3"),
    (
        "num_examples",
        field("num_examples", lambda key, num_examples, spec: 2 * num_examples),
        "with images num_examples must be neither negative nor increased",
    ),
    ("finite", field("x", lambda key, x, spec: x + jnp.nan), "with images inputs and targets must be finite"),
    (
        "deterministic",
        field("x", lambda key, x, spec: x * np.random.rand()),  # noqa: NPY002
        "the same key must give the same data, but a second call differs",
    ),
    ("trigger", with_trigger(lambda x, y: (x[::-1], y)), "with images a triggered example must not depend on others"),
    ("trigger", with_trigger(randomize), "with images a second call of trigger differs"),
    ("change_inputs", shifted_by_padding(), r"with images x of clients .* must be that of apply"),
]


def test_only_accepted_kinds_of_data_are_tried():
    """`next_class` does not apply to numbers."""
    with pytest.raises(AssertionError, match="with regression"):
        check_corruption(field("y", lambda key, y, spec: y if spec.num_classes else y / 0))
    check_corruption(field("y", next_class, validate=require_classes))
    check_corruption(field("x", lambda key, x, spec: -x), VECTORS)
    numbers = DataSpec("vector", 0, (5,), "float32")
    with pytest.raises(AssertionError, match=r"^validate: the corruption must accept"):
        check_corruption(field("y", next_class, validate=require_classes), numbers)
