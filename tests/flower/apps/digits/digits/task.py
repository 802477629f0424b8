"""Model, data, training and tests."""

import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, inputs=64, hidden=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)


@lru_cache
def samples(data):
    """Images and labels: scikit-learn's digits, or Fashion-MNIST from a folder."""
    if data == "digits":
        found = load_digits()
        return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)
    with gzip.open(Path(data) / "t10k-images-idx3-ubyte.gz") as file:
        x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(Path(data) / "t10k-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.tensor(x[:1797] / 255, dtype=torch.float32), torch.tensor(y[:1797].astype(np.int64))


def net_for(data):
    return Net(samples(data)[0].shape[1])


def load_data(data, partition, partitions, batch_size):
    x, y = samples(data)
    train, test = slice(partition, 1500, partitions), slice(1500 + partition, None, partitions)
    return (
        DataLoader(TensorDataset(x[train], y[train]), batch_size=batch_size, shuffle=True),
        DataLoader(TensorDataset(x[test], y[test]), batch_size=64),
    )


def central_test(data):
    x, y = samples(data)
    return DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=64)


def train(net, loader, epochs, lr, anchor=None, mu=0.0):
    loss_of, optimiser = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimiser.zero_grad()
            loss = loss_of(net(x), y)
            if mu:
                loss = loss + mu / 2 * sum(((a - b) ** 2).sum() for a, b in zip(net.parameters(), anchor, strict=True))
            loss.backward()
            optimiser.step()
            total += loss.item()
    return total / len(loader) / epochs


def test(net, loader):
    loss_of, loss, right, n = nn.CrossEntropyLoss(), 0.0, 0, 0
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            loss += loss_of(out, y).item() * len(y)
            right += (out.argmax(1) == y).sum().item()
            n += len(y)
    return loss / n, right / n
