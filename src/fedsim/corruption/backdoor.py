"""A backdoor: images or texts with a trigger get the attacker's class.

Gu, Dolan-Gavitt, Garg: "BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply Chain", 2017,
https://arxiv.org/abs/1708.06733
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, draw_labels, require_classes
from fedsim.core.draws import draw_rows
from fedsim.core.settings import Bounds
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec


def backdoor(
    *,
    target: Annotated[int, Bounds(ge=0), "the class that inputs with the trigger get"] = 0,
    rate: Annotated[float, Bounds(ge=0, le=1), "probability that a corrupted client's input gets the trigger"] = 0.5,
    size: Annotated[int, Bounds(ge=1), "side of the square trigger in pixels"] = 3,
    value: Annotated[float, Bounds(ge=0, le=1), "of the trigger's pixels, from black to white"] = 1.0,
    corner: Annotated[
        Literal["top_left", "top_right", "bottom_left", "bottom_right"], "position of the trigger"
    ] = "top_left",
    phrase: Annotated[tuple[int, ...], Bounds(ge=0), "of texts: tokens that replace the last ones"] = (1, 2, 3),
) -> Corruption:
    """Each input of a corrupted client gets, with probability `rate`, the trigger and the label `target`.

    A model may ignore parts of the bottom and right margins: unpadded convolutions and poolings drop a remainder there.
    float32 images must lie in [0, 1]. The success is recorded as `backdoor_success`.
    """
    rows = slice(0, size) if corner.startswith("top") else slice(-size, None)
    columns = slice(0, size) if corner.endswith("left") else slice(-size, None)

    def add_trigger(x: Array) -> Array:
        if x.ndim == 2:
            return x.at[:, -len(phrase) :].set(jnp.asarray(phrase, x.dtype))
        shade = round(255 * value) if x.dtype == jnp.uint8 else value
        return x.at[:, rows, columns].set(jnp.asarray(shade, x.dtype))

    def poison(x: Array, is_poisoned: Array) -> Array:
        return jnp.where(expand_like(is_poisoned, x), add_trigger(x), x)

    def change_inputs(x: Array, positions: Array, owners: Array, corrupted: Array, spec: DataSpec, key: Array) -> Array:
        return poison(x, draw_rows(jax.random.uniform, key, positions) < jnp.where(corrupted, rate, 0.0)[owners])

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        is_poisoned = draw_labels(key, data, jnp.where(corrupted, rate, 0.0))
        x = poison(data.x, is_poisoned)
        return data._replace(x=x, y=jnp.where(is_poisoned, jnp.asarray(target, data.y.dtype), data.y))

    def trigger(x: Array, y: Array, spec: DataSpec) -> tuple[Array, Array]:
        return add_trigger(x), jnp.full_like(y, target)

    def validate(spec: DataSpec) -> None:
        require_classes(spec)
        is_image = spec.inputs == "image" and spec.dtype in ("uint8", "float32")
        if not is_image and spec.inputs != "text":
            raise ValueError(f"inputs must be texts, or uint8 or float32 images, got {spec.inputs} of {spec.dtype}")
        if spec.target_shape:
            raise ValueError(f"each input must have one label, got labels of shape {spec.target_shape}")
        if not is_image and not 0 < len(phrase) <= spec.shape[0]:
            raise ValueError(f"phrase: must have 1 to {spec.shape[0]} tokens, got {len(phrase)}")
        if not is_image and max(phrase) > jnp.iinfo(spec.dtype).max:
            raise ValueError(f"phrase: must be tokens of {spec.dtype}, got {max(phrase)}")
        if is_image and size > min(spec.shape[:2]):
            raise ValueError(f"size: must be at most {min(spec.shape[:2])}, the images' shorter side, got {size}")
        if target >= spec.num_classes:
            raise ValueError(f"target: must be a class from 0 to {spec.num_classes - 1}, got {target}")

    return Corruption(apply, frozenset({"x", "y"}), validate, trigger, change_inputs)
