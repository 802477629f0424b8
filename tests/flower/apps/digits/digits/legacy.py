"""An app of the older kind: a NumPyClient, a strategy with `fit` and `evaluate`, and a workflow of secure aggregation."""

import numpy as np
import torch
from digits.task import load_data, net_for
from digits.task import test as test_fn
from digits.task import train as train_fn
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import LegacyContext, ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow


class Client(NumPyClient):
    def __init__(self, context):
        node, self.run = context.node_config, context.run_config
        self.net = net_for(self.run["data"])
        args = (node["partition-id"], node["num-partitions"], self.run["batch-size"])
        self.train, self.test = load_data(self.run["data"], *args)

    def load(self, parameters):
        names = self.net.state_dict()
        self.net.load_state_dict({k: torch.tensor(np.array(v)) for k, v in zip(names, parameters, strict=True)})

    def fit(self, parameters, config):
        self.load(parameters)
        loss = train_fn(self.net, self.train, self.run["epochs"], self.run["lr"])
        return [v.numpy() for v in self.net.state_dict().values()], len(self.train.dataset), {"loss": loss}

    def evaluate(self, parameters, config):
        self.load(parameters)
        loss, accuracy = test_fn(self.net, self.test)
        return loss, len(self.test.dataset), {"accuracy": accuracy}


def client_fn(context: Context):
    return Client(context).to_client()


def mean(results):
    total = sum(n for n, _ in results)
    return {"accuracy": sum(n * m["accuracy"] for n, m in results) / total}


def strategy(config):
    torch.manual_seed(0)
    first = [v.numpy() for v in net_for(config["data"]).state_dict().values()]
    return FedAvg(
        fraction_evaluate=config["fraction-evaluate"],
        initial_parameters=ndarrays_to_parameters(first),
        evaluate_metrics_aggregation_fn=mean,
    )


def server_fn(context: Context):
    config = ServerConfig(num_rounds=context.run_config["rounds"])
    return ServerAppComponents(strategy=strategy(context.run_config), config=config)


client = ClientApp(client_fn=client_fn)
server = ServerApp(server_fn=server_fn)

secret_client = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
secret_server = ServerApp()


@secret_server.main()
def main(grid, context):
    run = context.run_config
    legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=run["rounds"]), strategy=strategy(run))
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))(grid, legacy)
