"""The paper's character-level language model for Shakespeare (section "Experimental Setup")."""

from typing import Annotated, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import glorot_uniform

from fedsim.core.settings import Bounds
from fedsim.core.types import Array, DataSpec
from fedsim.models.recurrent import LSTM


class CharLSTM(nn.Module):
    """An embedding, `num_layers` LSTM layers with dropout on inputs or outputs, and a dense layer on the last output.

    x [B, T] integer characters; logits [B, num_classes] of the next one. 817,872 parameters by default, with one bias
    vector per gate. A dropout mask is drawn for each batch. As in Keras, which the paper uses, a mask of inputs is the
    same at all positions of a text, and a mask of outputs differs. The recurrent kernel of each gate is orthogonal. The
    embedding is a one-hot product, because the gradient of a lookup is a scatter. Raises `ValueError` for other inputs.
    """

    num_classes: int = 80
    embedding_size: int = 8
    hidden_size: int = 256
    num_layers: int = 2
    dropout_rate: float = 0.2
    dropout_at: Literal["inputs", "outputs"] = "inputs"
    forget_bias: float = 0.0

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        if x.ndim != 2 or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(f"x: must be integers [B, T], got {x.dtype} {x.shape}")
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"dropout_rate: must be at least 0 and less than 1, got {self.dropout_rate}")
        one_hot = jax.nn.one_hot(x.T, self.num_classes, dtype=jnp.bfloat16)  # [T, B, num_classes]; 0 and 1 are exact
        x = nn.Dense(self.embedding_size, use_bias=False, kernel_init=glorot_uniform(), name="embedding")(one_hot)
        for number in range(self.num_layers):
            if self.dropout_at == "inputs":
                x = nn.Dropout(self.dropout_rate, broadcast_dims=(0,), deterministic=not train)(x)
            x = LSTM(self.hidden_size, self.forget_bias)(x)
            x = x if number + 1 < self.num_layers else x[-1]
            if self.dropout_at == "outputs":
                x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
        return nn.Dense(self.num_classes, kernel_init=glorot_uniform())(x)


def char_lstm(
    spec: DataSpec,
    *,
    hidden_size: Annotated[int, Bounds(ge=1), "units of each of the two LSTM layers"] = 256,
    forget_bias: Annotated[float, Bounds(ge=-100, le=100), "initial bias of the forget gates; Keras: 1"] = 0.0,
    dropout_at: Annotated[
        Literal["inputs", "outputs"],
        "dropout of 0.2 on the inputs of each LSTM layer, or on its outputs (authors' program)",
    ] = "inputs",
) -> CharLSTM:
    """The paper's network for Shakespeare."""
    return CharLSTM(spec.num_outputs, hidden_size=hidden_size, dropout_at=dropout_at, forget_bias=forget_bias)
