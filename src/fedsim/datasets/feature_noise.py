"""A partition with more input noise from client to client.

Li, Diao, Chen, He: "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022,
https://arxiv.org/abs/2102.02079
"""

from typing import Annotated, Literal

import numpy as np

from fedsim.core.settings import Bounds
from fedsim.datasets.partition import iid
from fedsim.datasets.portions import empty
from fedsim.datasets.raw import Partition, RawDataset
from fedsim.errors import DataError


def feature_noise(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    sigma: Annotated[float, Bounds(ge=0, le=1e6), "noise of the last client, for pixels in [0, 1]"] = 0.1,
    level: Annotated[
        Literal["variance", "deviation"],
        "what sigma (i + 1) / N is of client i = 0 ... N - 1; deviation: sigma i / (N - 1) (authors' program)",
    ] = "variance",
) -> Partition:
    """Partition as by `iid`, with noise N(0, sigma (i + 1) / N) on the inputs of client i, drawn once.

    Pixels of uint8 images are noised and clipped in [0, 1], and stay uint8; floats are neither scaled nor clipped.
    Raises `DataError` for other inputs.
    """
    if raw.inputs == "text" or raw.x.dtype not in (np.uint8, np.float32):
        raise DataError(
            f'data.partition: must not be "feature_noise" for {raw.name}, whose inputs are {raw.inputs}s of '
            f'{raw.x.dtype} and not uint8 images or float32; use "iid"'
        )
    client_ids = iid(raw, num_clients, rng)
    clients = np.arange(num_clients)
    if level == "variance":
        std = np.sqrt(sigma * (clients + 1) / num_clients)
    else:
        std = sigma * clients / max(num_clients - 1, 1)
    x = empty(raw.x.shape, raw.x.dtype)
    for client in clients:  # one by one, because noise takes four times the memory of uint8 images
        members = client_ids == client
        noise = np.float32(std[client]) * rng.standard_normal(raw.x[members].shape, np.float32)
        if raw.x.dtype == np.uint8:
            x[members] = np.round(np.clip(raw.x[members] + 255 * noise, 0, 255)).astype(np.uint8)
        else:
            x[members] = raw.x[members] + noise
    return Partition(client_ids, x)
