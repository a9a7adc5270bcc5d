"""A small decoder for text: a causal transformer with normalization before each part.

Vaswani et al.: "Attention Is All You Need", NeurIPS 2017, https://arxiv.org/abs/1706.03762; Xiong et al.: "On Layer
Normalization in the Transformer Architecture", ICML 2020, https://arxiv.org/abs/2002.04745; rotary positions: Su et
al.: "RoFormer", https://arxiv.org/abs/2104.09864; tied embeddings: Press, Wolf, EACL 2017, https://arxiv.org/abs/1608.05859.
"""

from functools import partial
from typing import Annotated, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import glorot_uniform, normal

from fedsim.core.settings import Bounds
from fedsim.core.types import Array, DataSpec

Dense = partial(nn.Dense, kernel_init=glorot_uniform())
MAX_PERIOD = 10_000.0  # of rotations, in positions over 2 pi


class Transformer(nn.Module):
    """Embedding, `num_layers` blocks of causal attention and a perceptron; logits by the embedding or a dense layer.

    x [B, T] integer tokens; logits [B, T, num_outputs], or [B, num_outputs] of the last position. In training, parts of
    the sum of embedding and blocks are dropped. Raises `ValueError` for other inputs.
    """

    num_outputs: int
    vocabulary_size: int
    each_position: bool = False
    """Whether there are outputs at each position."""
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 4
    positions: Literal["rotary", "learned"] = "rotary"
    is_tied: bool = True
    """Whether the embedding gives the logits."""
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        if x.ndim != 2 or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(f"x: must be integers [B, T], got {x.dtype} {x.shape}")
        drop = lambda h: nn.Dropout(self.dropout_rate, deterministic=not train)(h)
        embedding = self.param("embedding", normal(0.02), (self.vocabulary_size, self.hidden_size))
        h = jax.nn.one_hot(x, self.vocabulary_size, dtype=embedding.dtype) @ embedding  # its gradient has no scatter
        if self.positions == "learned":
            h = h + self.param("positions", normal(0.02), (x.shape[1], self.hidden_size))[None]
        h = drop(h)
        for _ in range(self.num_layers):
            h = h + drop(self._attend(nn.LayerNorm()(h)))
            inner = nn.gelu(Dense(4 * self.hidden_size)(nn.LayerNorm()(h)))
            h = h + drop(Dense(self.hidden_size)(inner))
        h = nn.LayerNorm()(h if self.each_position else h[:, -1])
        return h @ embedding.T if self.is_tied else Dense(self.num_outputs)(h)

    def _attend(self, h: Array) -> Array:
        """Causal attention of `num_heads` heads over h [B, T, D]."""
        split = lambda a: a.reshape(*a.shape[:2], self.num_heads, -1)
        query, key, value = map(split, jnp.split(Dense(3 * self.hidden_size, use_bias=False)(h), 3, axis=-1))
        if self.positions == "rotary":
            query, key = rotate(query), rotate(key)
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / jnp.sqrt(jnp.asarray(query.shape[-1], h.dtype))
        is_past = jnp.tril(jnp.ones(scores.shape[-2:], bool))[None, None]
        shares = jax.nn.softmax(jnp.where(is_past, scores, -jnp.inf), axis=-1)
        return Dense(self.hidden_size, use_bias=False)(jnp.einsum("bhqk,bkhd->bqhd", shares, value).reshape(h.shape))


def rotate(a: Array) -> Array:
    """`a` [B, T, H, D], with coordinates i and i + D/2 rotated by the position times MAX_PERIOD ** (-2 i / D)."""
    half = a.shape[-1] // 2
    rates = MAX_PERIOD ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.outer(jnp.arange(a.shape[1], dtype=jnp.float32), rates)[None, :, None, :]
    cos, sin = jnp.cos(angles).astype(a.dtype), jnp.sin(angles).astype(a.dtype)
    first, second = a[..., :half], a[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def transformer(
    spec: DataSpec,
    *,
    hidden_size: Annotated[int, Bounds(ge=1), "size of the embedding and of each block's output"] = 64,
    num_layers: Annotated[int, Bounds(ge=1), "blocks of attention and perceptron"] = 2,
    num_heads: Annotated[int, Bounds(ge=1), "heads of attention; they divide the size"] = 4,
    positions: Annotated[Literal["rotary", "learned"], "how blocks know positions"] = "rotary",
    tied: Annotated[bool, "whether the embedding gives the logits, if outputs are tokens"] = True,
    vocabulary_size: Annotated[
        int | None, Bounds(ge=1), "tokens of the inputs; by default as many as outputs (the next token)"
    ] = None,
    dropout_rate: Annotated[float, Bounds(ge=0, lt=1), "probability that a hidden unit is dropped in training"] = 0.0,
) -> Transformer:
    """The decoder for texts: with a target for each token, or one for the last. Raises `ValueError` for odd heads."""
    if hidden_size % (2 * num_heads):
        raise ValueError(f"hidden_size: must be a multiple of {2 * num_heads}, twice the heads, got {hidden_size}")
    tokens = vocabulary_size or spec.num_outputs
    return Transformer(
        spec.num_outputs,
        tokens,
        spec.target_shape == spec.shape,
        hidden_size,
        num_layers,
        num_heads,
        positions,
        tied and tokens == spec.num_outputs,
        dropout_rate,
    )
