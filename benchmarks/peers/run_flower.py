"""Flower: its FedAvg on the simulation engine, with one Ray worker a core."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from workload import BATCH, LEARNING_RATE, Rounds, asked, made_once, make_workload, network, test_loss


def client_app(clients: int) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model, parts = made_once(clients)
        x, y = parts[int(context.node_config["partition-id"])]
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        for index in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[index]), y[index]).backward()
            optimiser.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def main() -> None:
    told = asked()
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # Ray's workers import from there
    work, model = make_workload(told.clients), network()
    rounds = Rounds(test_loss(model, work))
    app = ServerApp()

    def on_round(number: int, arrays: ArrayRecord) -> MetricRecord:
        def loss() -> float:
            model.load_state_dict(arrays.to_torch_state_dict())
            return test_loss(model, work)

        if number:
            rounds.ended(loss)
        return MetricRecord()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0)
        strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=told.rounds, evaluate_fn=on_round)

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(app, client_app(told.clients), told.clients, backend_config={"client_resources": resources})
    rounds.print()


if __name__ == "__main__":
    main()
