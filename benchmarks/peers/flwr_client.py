"""A client of Flower, in a separate module so that Ray's workers import it and cache its data."""

from functools import cache
from pathlib import Path

import exchange
import torch
import torch_models
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

app = ClientApp()


@cache
def load(folder: str, fedsim_order: bool) -> tuple[exchange.Work, nn.Module, Tensor, Tensor]:
    """The workload, its model, and its examples as tensors, cached in each worker."""
    work = exchange.load(Path(folder), fedsim_order)
    model = torch_models.build(work.settings, work.params)
    return work, model, torch.from_numpy(work.x), torch.from_numpy(work.y).long()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Trains the client of the round's cohort at the position of the node's partition."""
    config = message.content["config"]
    work, model, x, y = load(str(config["folder"]), bool(config["fedsim-order"]))
    client = work.cohort(int(config["server-round"]) - 1)[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    torch_models.train_client(model, x, y, work.examples(client), work.settings)
    metrics = MetricRecord({"num-examples": int(work.num_examples[client])})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
