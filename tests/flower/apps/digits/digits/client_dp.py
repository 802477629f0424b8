"""The same client with a mod of Flower for local differential privacy, and one that logs sizes."""

from digits import client
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, message_size_mod

app = ClientApp()


@app.train(mods=[message_size_mod, LocalDpMod(clipping_norm=5.0, sensitivity=0.01, epsilon=10.0, delta=1e-5)])
def train(msg, context):
    return client.train(msg, context)


@app.evaluate()
def evaluate(msg, context):
    return client.evaluate(msg, context)
