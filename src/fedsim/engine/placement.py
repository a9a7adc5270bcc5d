"""Where the data of a group's clients lie: on its devices, or on the host."""

from collections.abc import Sequence

import jax

from fedsim.engine.families import Group
from fedsim.engine.family import Family
from fedsim.engine.group_inputs import Inputs
from fedsim.engine.streamed.inputs import StreamedInputs


def make_inputs(group: Group, family: Family, devices: Sequence[jax.Device] | None = None) -> Inputs:
    """What the programs of the group read, on the first of `devices` (default: JAX's)."""
    kind = StreamedInputs if group.layout.buffer_examples else Inputs
    return kind(group, family, devices)
