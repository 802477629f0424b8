"""FedAvg of Flower on samples and from a first model that stand in an .npz file; a client takes one step on all it has."""

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

client, server = ClientApp(), ServerApp()


def net_and_file(context):
    found = np.load(context.run_config["file"])
    first = [torch.tensor(found[f"p{n}"]) for n in range(4)]
    net = nn.Sequential(nn.Linear(first[0].shape[1], len(first[0])), nn.ReLU(), nn.Linear(len(first[0]), len(first[2])))
    net.load_state_dict(dict(zip(net.state_dict(), first, strict=True)))
    return net, found


@client.train()
def train(msg: Message, context: Context):
    net, found = net_and_file(context)
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    mine = found["owner"] == context.node_config["partition-id"]
    x, y = torch.tensor(found["x"][mine]), torch.tensor(found["y"][mine])
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= context.run_config["lr"] * p.grad
    metrics = MetricRecord({"loss": loss.item(), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@server.main()
def main(grid: Grid, context: Context) -> None:
    net, found = net_and_file(context)

    def tested(_: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            out, y = net(torch.tensor(found["test_x"])), torch.tensor(found["test_y"])
        return MetricRecord(
            {"accuracy": (out.argmax(1) == y).float().mean().item(), "loss": nn.functional.cross_entropy(out, y).item()}
        )

    FedAvg(fraction_evaluate=0.0).start(
        grid, ArrayRecord(net.state_dict()), num_rounds=context.run_config["rounds"], evaluate_fn=tested
    )
