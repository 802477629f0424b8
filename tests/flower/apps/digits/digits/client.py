"""The client, written to the current API of Flower."""

from digits.task import load_data, net_for
from digits.task import test as test_fn
from digits.task import train as train_fn
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def loaders(context):
    node, run = context.node_config, context.run_config
    return load_data(run["data"], node["partition-id"], node["num-partitions"], run["batch-size"])


def received(msg, context):
    net = net_for(context.run_config["data"])
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    return net


@app.train()
def train(msg: Message, context: Context):
    net, (loader, _) = received(msg, context), loaders(context)
    config = msg.content["config"]
    anchor = [p.detach().clone() for p in net.parameters()]
    lr, mu = context.run_config["lr"], float(config.get("proximal-mu", 0.0))
    loss = train_fn(net, loader, context.run_config["epochs"], lr, anchor, mu)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    loss, accuracy = test_fn(received(msg, context), loader := loaders(context)[1])
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
