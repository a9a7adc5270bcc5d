"""Noise on inputs (the paper, "Experimental Setup")."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.core.contracts import Corruption
from fedsim.core.corrupt import example_owners
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
    """Noise on corrupted clients' inputs: `add_text_noise` for texts, `add_image_noise` for all others."""

    def apply(key: Array, data: ClientData, corrupted: Array, spec: DataSpec) -> ClientData:
        owner = example_owners(data)
        if spec.inputs == "text":
            x = add_text_noise(key, data.x, text_noise)
        else:
            x = add_image_noise(key, data.x, owner, corrupted.size, std)
        return data._replace(x=jnp.where(expand_like(corrupted[owner], data.x), x, data.x))

    return Corruption(apply, frozenset({"x"}), _validate)


def _validate(spec: DataSpec) -> None:
    if spec.inputs != "text" and spec.dtype not in ("uint8", "float32"):
        raise ValueError(f"inputs must be text, uint8 or float32, got {spec.dtype}")


def add_image_noise(key: Array, x: Array, owner: Array, num_clients: int, std: float) -> Array:
    """Images `x` [M, ...] in [0, 1] plus N(0, `std`^2) on each pixel, then rescaled to [0, 1] client by client.

    `owner` [M] is the client of each image. uint8 images stay uint8; float images must lie in [0, 1]. A client whose
    pixels are all equal is not rescaled.
    """
    is_uint8 = x.dtype == jnp.uint8
    noise = std * jax.random.normal(key, x.shape)
    pixels = ((x.astype(jnp.float32) / 255 if is_uint8 else x) + noise).reshape(x.shape[0], -1)
    low = jax.ops.segment_min(jnp.min(pixels, axis=1), owner, num_clients, indices_are_sorted=True)[owner]
    high = jax.ops.segment_max(jnp.max(pixels, axis=1), owner, num_clients, indices_are_sorted=True)[owner]
    scaled = (pixels - low[:, None]) / (high - low)[:, None]
    scaled = jnp.where((high > low)[:, None], scaled, pixels).reshape(x.shape)
    return jnp.round(255 * scaled).astype(jnp.uint8) if is_uint8 else scaled


def add_text_noise(key: Array, x: Array, text_noise: TextNoise = "permute") -> Array:
    """Texts `x` [M, T] with the characters at a random half of the positions of each permuted among themselves.

    With "replace" they are drawn uniformly from 0 to the largest character of all texts.
    """
    num_characters = jnp.max(x).astype(jnp.int32) + 1

    def add_noise(args: tuple[Array, Array]) -> Array:
        key, text = args
        half = jax.random.permutation(key, text.shape[0])[: text.shape[0] // 2]
        if text_noise == "replace":
            new = jax.random.randint(jax.random.fold_in(key, 1), half.shape, 0, num_characters)
            return text.at[half].set(new.astype(text.dtype))
        return text.at[jnp.sort(half)].set(text[half])

    return jax.lax.map(add_noise, (jax.random.split(key, x.shape[0]), x), batch_size=4096)
