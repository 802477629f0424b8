"""How fast local training is, as a ratio to a plain PyTorch loop in the same run.

    python benchmarks/training.py [--models]

The first workload is small models, bound by the cost of starting operations: 100 clients of 50 samples of 28×28, batch 10, a
CNN of two 5×5 convolutions (16 and 32 channels) and one layer. The second is bound by arithmetic: 20 clients of 100 samples
of 32×32×3, batch 32, a CNN of about a million parameters. ``--models`` compares the two ways of the engine (stack and loop,
in one process of one thread) for every bundled model, which is where the limits in `emulator.learning.trainer` come from.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from emulator.contracts.learning import LocalRuleChoice, local_rules, models
from emulator.learning.facts import model_facts
from emulator.learning.flat import FlatModel
from emulator.learning.trainer import Trainer, TrainingData, TrainJob
from emulator.learning.workers import WorkerPool
from emulator.machine import cores

REPEATS = 7


def module(name: str, shape: tuple[int, ...], **params: Any) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = models[name].function(shape, 10, models[name].params(**params))
    return made


def make_data(shape: tuple[int, ...], clients: int, samples: int) -> TrainingData:
    torch.manual_seed(1)
    total = clients * samples
    parts = np.split(np.arange(total), clients)
    return TrainingData(torch.randn(total, *shape), torch.randint(0, 10, (total,)), parts)


def make_jobs(make: Callable[[], nn.Module], clients: int, batch: int) -> list[TrainJob]:
    rule = LocalRuleChoice("sgd", local_rules["sgd"].params(batch_size=batch))
    weights = FlatModel(make()).state
    return [TrainJob(weights, c, rule, 1, 0) for c in range(clients)]


def plain_loop(make: Callable[[], nn.Module], data: TrainingData, batch: int) -> None:
    """What one writes without thinking about speed: one model, one optimiser, one client after another."""
    model = make()
    start = {k: v.clone() for k, v in model.state_dict().items()}
    for part in data.parts:
        model.load_state_dict(start)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for index in torch.from_numpy(np.random.default_rng(0).permutation(part)).split(batch):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(data.x[index]), data.y[index]).backward()
            optimiser.step()
        _ = {k: v.clone() for k, v in model.state_dict().items()}


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def workload(
    title: str, make: Callable[[], nn.Module], shape: tuple[int, ...], clients: int, samples: int, batch: int
) -> None:
    data = make_data(shape, clients, samples)
    jobs, flops = make_jobs(make, clients, batch), model_facts(make(), shape).forward_flops
    steps = [-(-samples // batch)] * clients
    trainer, pool = Trainer(make(), data, 0, flops), WorkerPool(cores(), make(), data, 0, flops)
    list(pool.train(jobs, steps))
    seconds: dict[str, list[float]] = {"loop": [], "one process": [], "workers": []}
    for _ in range(REPEATS):
        torch.set_num_threads(cores())
        seconds["loop"].append(timed(lambda: plain_loop(make, data, batch)))
        torch.set_num_threads(1)
        seconds["one process"].append(timed(lambda: list(trainer.train(jobs))))
        seconds["workers"].append(timed(lambda: list(pool.train(jobs, steps))))
    pool.close()
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{title}: {len(jobs[0].weights):,} parameters, {'stacked' if trainer.stacks(batch) else 'one by one'}")
    print(f"  plain loop, {cores()} threads     {middle['loop']:.3f} s   (best {min(seconds['loop']):.3f})")
    print(f"  engine, one process       {middle['one process']:.3f} s   {middle['loop'] / middle['one process']:.2f}×")
    ratio, best = middle["loop"] / middle["workers"], min(seconds["loop"]) / min(seconds["workers"])
    print(f"  engine, {cores()} workers         {middle['workers']:.3f} s   {ratio:.2f}×   (best to best {best:.2f}×)")


def every_model() -> None:
    torch.set_num_threads(1)
    cases: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("mlp", (1, 8, 8), {}), ("mlp", (1, 28, 28), {"hidden": (200,)}), ("cnn", (1, 8, 8), {}), ("lenet5", (1, 28, 28), {}),
        ("cnn-mnist", (1, 28, 28), {}), ("cnn-fashion-mnist", (1, 28, 28), {}), ("cnn-cifar10", (3, 32, 32), {}),
        ("resnet-1block", (1, 8, 8), {}), ("resnet-1block", (1, 28, 28), {}), ("resnet-3block", (3, 32, 32), {}),
    ]  # fmt: skip
    print(f"{'model':18} {'input':10} {'batch':>5} {'FLOPs a batch':>13} {'loop':>8} {'stack':>8} {'ratio':>6}  way")
    for name, shape, params in cases:
        for batch in (10, 32, 128):
            data = make_data(shape, 10, 2 * batch)

            def make(name: str = name, shape: tuple[int, ...] = shape, params: dict[str, Any] = params) -> nn.Module:
                return module(name, shape, **params)

            flops = model_facts(make(), shape).forward_flops
            jobs = make_jobs(make, 10, batch)
            ways = {}
            for way, claimed in (("loop", 1e30), ("stack", 0.0)):
                trainer = Trainer(make(), data, 0, claimed)
                ways[way] = min(timed(lambda trainer=trainer, jobs=jobs: list(trainer.train(jobs))) for _ in range(5))
            chosen = "stack" if Trainer(make(), data, 0, flops).stacks(batch) else "loop"
            side = "×".join(map(str, shape))
            ratio = ways["loop"] / ways["stack"]
            costs = f"{flops * batch:13.2e} {ways['loop']:8.3f} {ways['stack']:8.3f} {ratio:6.2f}"
            print(f"{name:18} {side:10} {batch:5} {costs}  {chosen}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", action="store_true", help="compare both ways for every bundled model")
    if parser.parse_args().models:
        every_model()
        return
    workload("small CNN", lambda: module("cnn-fashion-mnist", (1, 28, 28)), (1, 28, 28), 100, 50, 10)
    large = {"channels": (32, 64), "kernel": 5, "padding": "none", "hidden": (592,)}
    workload("large CNN", lambda: module("cnn", (3, 32, 32), **large), (3, 32, 32), 20, 100, 32)


if __name__ == "__main__":
    main()
