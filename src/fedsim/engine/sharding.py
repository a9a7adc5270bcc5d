"""How arrays lie on the devices of a layout: a mesh with the axes "runs" and "clients", or a single device."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from fedsim.engine.layout import CLIENTS, RUNS, Layout


class Shardings(NamedTuple):
    """The shardings of a layout."""

    mesh: Mesh | None
    """The devices; None for a single one."""
    everywhere: Sharding
    """Of arrays with a copy on each device."""
    by_run: Sharding
    """Of arrays [B, ...], batches of runs."""


def make_shardings(layout: Layout, devices: Sequence[jax.Device]) -> Shardings:
    """The shardings of a layout on the first of `devices`."""
    mesh = make_mesh(layout, devices)
    if mesh is None:
        return Shardings(None, *[SingleDeviceSharding(devices[0])] * 2)
    return Shardings(mesh, *(NamedSharding(mesh, spec) for spec in (P(), P(RUNS))))


def make_mesh(layout: Layout, devices: Sequence[jax.Device] | None = None) -> Mesh | None:
    """The mesh of a layout on the first of `devices`; None for a single device."""
    shape = (layout.run_devices, layout.client_devices)
    if shape == (1, 1):
        return None
    types = (jax.sharding.AxisType.Auto,) * 2
    devices, number = jax.devices() if devices is None else devices, math.prod(shape)
    if jax.process_count() > 1 and number < len(devices):
        chosen = np.reshape(_first_of_each_process(devices, number), shape)
        return Mesh(chosen, (RUNS, CLIENTS), axis_types=types)
    return jax.make_mesh(shape, (RUNS, CLIENTS), axis_types=types, devices=devices[:number])


def _first_of_each_process(devices: Sequence[jax.Device], number: int) -> list[jax.Device]:
    """The first devices of each process, equally many, `number` in all."""
    share = number // jax.process_count()
    by_process = [[d for d in devices if d.process_index == process] for process in range(jax.process_count())]
    return [device for local_devices in by_process for device in local_devices[:share]]
