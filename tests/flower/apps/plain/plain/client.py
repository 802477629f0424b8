import os
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

if os.environ.get("PLAIN_BROKEN") == "import":
    raise RuntimeError("no client today")

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    what = context.run_config["what"]
    node = context.node_config["partition-id"]
    if what == "client-raises" and node == 1:
        return hand_in(None)
    if what == "client-hangs" and node == 1:
        time.sleep(1000)
    if what == "client-dies" and node == 1:
        os._exit(3)
    values = msg.content["arrays"]["x"].numpy() + 1
    if what == "chance":
        values = values + np.frombuffer(os.urandom(8), np.uint8).sum()
    turns = int(context.state["turns"]["n"]) + 1 if "turns" in context.state else 1
    context.state["turns"] = MetricRecord({"n": turns})
    metrics = MetricRecord({"num-examples": 100 * (node + 1), "turns": turns, "samples-per-second": 50.0})
    return Message(RecordDict({"arrays": ArrayRecord({"x": Array(values)}), "metrics": metrics}), reply_to=msg)


def hand_in(values):
    return values["no such thing"]
