"""FedAvg, tested by the server."""

import torch
from digits.task import central_test, net_for
from digits.task import test as test_fn
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx

KINDS = {
    "fedavg": FedAvg,
    "fedprox": lambda **k: FedProx(proximal_mu=0.1, **k),
    "fedadam": lambda **k: FedAdam(eta=0.01, **k),
}


def start(grid: Grid, context: Context, kind: str) -> None:
    config = context.run_config
    torch.manual_seed(0)
    data = config["data"]

    def tested(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net = net_for(data)
        net.load_state_dict(arrays.to_torch_state_dict())
        loss, accuracy = test_fn(net, central_test(data))
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    strategy = KINDS[kind](fraction_evaluate=config["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net_for(data).state_dict()),
        train_config=ConfigRecord({"lr": config["lr"]}),
        num_rounds=config["rounds"],
        evaluate_fn=tested,
    )
    assert len(result.arrays)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    start(grid, context, "fedavg")
