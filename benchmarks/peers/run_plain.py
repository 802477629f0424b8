"""FedAvg as one writes it in PyTorch without thinking about speed: one model, one client after another, all cores a step."""

from __future__ import annotations

import torch
from torch import nn
from workload import BATCH, LEARNING_RATE, Rounds, asked, make_workload, network, test_loss


def main() -> None:
    told = asked()
    torch.set_num_threads(told.cores)
    work, model = make_workload(told.clients), network()
    parts = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in work.parts()]
    rounds = Rounds(test_loss(model, work))
    for _ in range(told.rounds):
        start = {k: v.clone() for k, v in model.state_dict().items()}
        total = {k: torch.zeros_like(v) for k, v in start.items()}
        for x, y in parts:
            model.load_state_dict(start)
            optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
            for index in torch.randperm(len(x)).split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[index]), y[index]).backward()
                optimiser.step()
            for name, value in model.state_dict().items():
                total[name] += value
        model.load_state_dict({k: v / len(parts) for k, v in total.items()})
        rounds.ended(lambda: test_loss(model, work))
    rounds.print()


if __name__ == "__main__":
    main()
