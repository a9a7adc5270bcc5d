"""Networks: one file each, plain flax modules that map inputs [B, *feature] to logits [B, num_classes]."""

from fedsim.models.mlp import MLP

__all__ = ["MLP"]
