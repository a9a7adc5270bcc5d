"""Model replacement.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: "How To Backdoor Federated Learning", AISTATS 2020,
https://arxiv.org/abs/1807.00459
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.honest import cast_like_report, to_float32
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.trees import nonzero
from fedsim.core.types import Array, PyTree, Scalar


def model_replacement(
    *,
    scale: Annotated[
        Scalar | None,
        Traced(**POSITIVE),
        "multiplies the client's own update; default: what replaces FedAvg's model with the malicious clients'",
    ] = None,
) -> Attack:
    """Malicious clients send scale x their own update, so that the average becomes a model trained on corrupted data.

    In the paper it sends the model (n / eta) (X - G) + G, that is, n / eta times the update X - G: for n clients whose
    updates are summed with weights eta / n. FedAvg's weights are m_k / sum m, so the default scale is the number of
    examples of all valid clients over those of the valid malicious ones, as reported: once the honest updates cancel,
    the average is the malicious clients' mean update. The corruption of the data determines the model X.
    """

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        factor = replacement_scale(context) if scale is None else scale
        scaled = jax.tree.map(lambda u: factor * u, to_float32(context.report.updates))
        return cast_like_report(scaled, context), state

    return Attack(forge_updates=forge_updates)


def replacement_scale(context: AttackContext) -> Float[Array, ""]:
    """Examples of the valid clients over those of the valid malicious ones; 1 without malicious clients."""
    num_examples = jnp.where(context.report.valid, context.report.num_examples, 0).astype(jnp.float32)
    num_malicious = jnp.sum(jnp.where(context.malicious, num_examples, 0.0))
    return jnp.where(num_malicious > 0, jnp.sum(num_examples) / nonzero(num_malicious), 1.0)
