"""Noise on inputs (the paper, "Experimental Setup")."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.core.corrupt import Corruption, example_owners
from fedsim.core.draws import draw_rows, split_rows
from fedsim.core.settings import Bounds
from fedsim.core.trees import expand_like
from fedsim.core.types import Array, ClientData, DataSpec

TextNoise = Literal["permute", "replace"]


def noisy(
    *,
    std: Annotated[
        float, Bounds(ge=0, le=1e6), "standard deviation of the noise on pixels in [0, 1]; no effect on texts"
    ] = 0.7,
    text_noise: Annotated[
        TextNoise,
        "permute a random half of each text's characters, or replace them by random ones (authors' code); no effect on "
        "images",
    ] = "permute",
) -> Corruption:
    """Noise on corrupted clients' inputs: `add_text_noise` for texts, `add_image_noise` for all others.

    With "replace" there is no `change_inputs`: the largest character of all texts must be known.
    """

    def apply(data: ClientData, corrupted: Array, spec: DataSpec, key: Array) -> ClientData:
        owners = example_owners(data)
        if spec.inputs == "text":
            x = add_text_noise(jax.random.split(key, len(data.x)), data.x, text_noise)
        else:
            x = add_image_noise(std * jax.random.normal(key, data.x.shape), data.x, owners, corrupted.size)
        return data._replace(x=jnp.where(expand_like(corrupted[owners], data.x), x, data.x))

    def change_inputs(x: Array, positions: Array, owners: Array, corrupted: Array, spec: DataSpec, key: Array) -> Array:
        if spec.inputs == "text":
            changed = add_text_noise(split_rows(key, positions), x)
        else:
            noise = std * draw_rows(jax.random.normal, key, positions, spec.shape)
            changed = add_image_noise(noise, x, owners, corrupted.size)
        return jnp.where(expand_like(corrupted[owners], x), changed, x)

    return Corruption(
        apply, frozenset({"x"}), _validate, change_inputs=change_inputs if text_noise == "permute" else None
    )


def _validate(spec: DataSpec) -> None:
    if spec.inputs != "text" and spec.dtype not in ("uint8", "float32"):
        raise ValueError(f"inputs must be text, uint8 or float32, got {spec.dtype}")


def add_image_noise(noise: Array, x: Array, owners: Array, num_clients: int) -> Array:
    """Images `x` [M, ...] in [0, 1] plus `noise` [M, ...], then rescaled to [0, 1] client by client.

    `owners` [M] are the clients of the images. uint8 images stay uint8; float images must lie in [0, 1]. A client whose
    pixels are all equal is not rescaled.
    """
    is_uint8 = x.dtype == jnp.uint8
    clean = x.astype(jnp.float32) / 255 if is_uint8 else x
    # Some programs would round the sum of products only once (a fused multiply-add), and others not. The selections,
    # which change no number, keep compilers from that, so that pixels do not depend on the program.
    pixels = (jnp.where(noise < jnp.inf, clean, 0) + jnp.where(noise == noise, noise, 0)).reshape(x.shape[0], -1)
    low = jax.ops.segment_min(jnp.min(pixels, axis=1), owners, num_clients)[owners]
    high = jax.ops.segment_max(jnp.max(pixels, axis=1), owners, num_clients)[owners]
    scaled = (pixels - low[:, None]) / (high - low)[:, None]
    scaled = jnp.where((high > low)[:, None], scaled, pixels).reshape(x.shape)
    return jnp.round(255 * scaled).astype(jnp.uint8) if is_uint8 else scaled


def add_text_noise(keys: Array, x: Array, text_noise: TextNoise = "permute") -> Array:
    """Texts `x` [M, T] with the characters at a random half of the positions of each permuted among themselves.

    Each text has one of the `keys` [M]. With "replace" the characters are drawn uniformly from 0 to the largest one of
    all texts.
    """
    num_characters = jnp.max(x).astype(jnp.int32) + 1

    def add_noise(args: tuple[Array, Array]) -> Array:
        key, text = args
        half = jax.random.permutation(key, text.shape[0])[: text.shape[0] // 2]
        if text_noise == "replace":
            new = jax.random.randint(jax.random.fold_in(key, 1), half.shape, 0, num_characters)
            return text.at[half].set(new.astype(text.dtype))
        return text.at[jnp.sort(half)].set(text[half])

    return jax.lax.map(add_noise, (keys, x), batch_size=4096)
