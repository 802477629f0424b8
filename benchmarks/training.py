"""How fast local training is, as a ratio to a plain PyTorch loop in the same run.

    python benchmarks/training.py [--models [NAME ...]]

The first workload is small models, bound by the cost of starting operations: 100 clients of 50 samples of 28×28, batch 10, a
CNN of two 5×5 convolutions (16 and 32 channels) and one layer. The second is bound by arithmetic: 20 clients of 100 samples
of 32×32×3, batch 32, a CNN of about a million parameters. ``--models`` does the same for every bundled model and for examples
with batch normalisation, recurrence and attention, with few samples each. It shows both ways of the engine (all in one process of
one thread: the stack, and one model after another), which is where the limits in `emulator.learning.trainer` come from, and what
a run has of it: the way that the engine takes, in as many workers as there are cores, beside the loop with as many threads.
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
from emulator.learning.blocks import LastStep, PlacedEmbedding
from emulator.learning.facts import model_facts
from emulator.learning.flat import FlatModel
from emulator.learning.trainer import Trainer, TrainingData, TrainJob
from emulator.learning.workers import WorkerPool
from emulator.machine import cores

REPEATS = 7
CLASSES = 10
LARGE = 10_000_000  # parameters of models of which there are fewer clients


def module(name: str, shape: tuple[int, ...], **params: Any) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = models[name].function(shape, CLASSES, models[name].params(**params))
    return made


def make_data(shape: tuple[int, ...], clients: int, samples: int, tokens: bool = False) -> TrainingData:
    torch.manual_seed(1)
    total = clients * samples
    parts = np.split(np.arange(total), clients)
    x = torch.randint(0, CLASSES, (total, *shape)) if tokens else torch.randn(total, *shape)
    return TrainingData(x, torch.randint(0, CLASSES, (total,)), parts)


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


def reader(recurrent: nn.RNNBase) -> nn.Module:
    return nn.Sequential(nn.Embedding(CLASSES, 8), recurrent, LastStep(), nn.Linear(recurrent.hidden_size, CLASSES))


def attentive(width: int, heads: int, steps: int) -> nn.Module:
    block = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, batch_first=True)
    return nn.Sequential(PlacedEmbedding(CLASSES, steps, width), block, nn.Flatten(), nn.Linear(steps * width, CLASSES))


def normalised() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32)):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 49, CLASSES))


Case = tuple[str, Callable[[], nn.Module], tuple[int, ...], bool, tuple[int, ...]]


def cases() -> list[Case]:
    """Name, model, shape of a sample, whether it is tokens, batch sizes."""
    small, grey, colour, text = (1, 8, 8), (1, 28, 28), (3, 32, 32), (40,)
    bundled: list[tuple[str, tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
        ("mlp", small, {}, (10, 32)), ("mlp", grey, {"hidden": (200,)}, (10, 32, 128)), ("cnn", small, {}, (10, 32, 128)),
        ("lenet5", grey, {}, (10, 32, 128)), ("cnn-mnist", grey, {}, (10, 32, 128)),
        ("cnn-fashion-mnist", grey, {}, (10, 32, 128)),
        ("cnn-cifar10", colour, {}, (10, 32, 128)), ("cnn-hfldd", colour, {}, (10, 32)), ("cnn-fedseq", colour, {}, (10, 32)),
        ("audio-cnn", (1, 40, 51), {}, (10, 32)), ("har-cnn", (6, 1, 128), {}, (10, 32)),
        ("resnet-1block", small, {}, (10, 32, 128)), ("resnet-1block", grey, {}, (10, 32)),
        ("resnet-3block", colour, {}, (10, 32)),
        ("resnet-1block", small, {"norm": "batch"}, (10, 32, 128)), ("resnet-3block", colour, {"norm": "batch"}, (10, 32)),
        ("resnet18", colour, {}, (10,)), ("vgg11", (3, 64, 64), {}, (10,)), ("mlp", grey, {"hidden": (1000,)}, (10, 32)),
    ]  # fmt: skip
    texts: list[tuple[str, dict[str, Any]]] = [
        ("char-lstm", {}), ("char-lstm", {"hidden": 32, "layers": 1}), ("char-gru", {}),
        ("char-gru", {"hidden": 32, "layers": 1}), ("word-lstm", {"hidden": 64}),
    ]  # fmt: skip
    found: list[Case] = []
    for name, shape, params, batches in bundled:
        title = f"{name} ({params['norm']} norm)" if "norm" in params else name
        title += f" {params['hidden'][0]}" if "hidden" in params else ""
        found.append((title, lambda n=name, s=shape, p=params: module(n, s, **p), shape, False, batches))  # type: ignore[misc]
    for name, params in texts:
        title = f"{name} (hidden {params['hidden']})" if params else name
        found.append((title, lambda n=name, p=params: module(n, text, **p), text, True, (10, 32)))  # type: ignore[misc]
    found.append(("BatchNorm example", normalised, grey, False, (10, 32)))
    found.append(("LSTM example", lambda: reader(nn.LSTM(8, 32, batch_first=True)), text, True, (10, 32)))
    found.append(("GRU example", lambda: reader(nn.GRU(8, 32, batch_first=True)), text, True, (10, 32)))
    found.append(("attention example", lambda: attentive(32, 4, 16), (16,), True, (10, 32)))
    return found


def every_model(wanted: list[str]) -> None:
    print(f"{'model':26} {'input':8} {'batch':>5} {'FLOPs':>8}   ", end="")
    print("one process: alone   stack  ratio   all cores: loop  engine  ratio  way")
    for name, make, shape, tokens, batches in cases():
        if wanted and not any(each in name for each in wanted):
            continue
        for batch in batches:
            print(f"{name:26} {'×'.join(map(str, shape)):8} {batch:5} {row_of(make, shape, tokens, batch)}", flush=True)


def row_of(make: Callable[[], nn.Module], shape: tuple[int, ...], tokens: bool, batch: int) -> str:
    def fresh() -> nn.Module:
        torch.manual_seed(0)
        return make()

    facts = model_facts(fresh(), shape, tokens)
    flops, clients = facts.forward_flops, 20 if facts.parameters < LARGE else 2
    data, jobs = make_data(shape, clients, 2 * batch, tokens), make_jobs(fresh, clients, batch)
    repeats = 3 if flops * batch > 1e9 else REPEATS
    trainer = Trainer(fresh(), data, 0, flops)
    way = "stack" if trainer.stacks(batch) else "alone"
    pool = WorkerPool(cores(), fresh(), data, 0, trainer.claimed_flops)
    actions: dict[str, Callable[[], object]] = {"alone": lambda: list(Trainer.train(ways["alone"], jobs))}
    ways = {"alone": Trainer(fresh(), data, 0, 1e30), "stack": Trainer(fresh(), data, 0, 0.0)}
    if flops * batch < 1e9 and ways["stack"].stacks(batch):
        actions["stack"] = lambda: list(ways["stack"].train(jobs))
    actions["loop"] = lambda: plain_loop(fresh, data, batch)
    actions["engine"] = lambda: list(pool.train(jobs, [2] * len(jobs)))
    best: dict[str, float] = {}
    for _ in range(repeats):
        for each, action in actions.items():
            torch.set_num_threads(cores() if each == "loop" else 1)
            best[each] = min(best.get(each, 1e9), timed(action))
    pool.close()
    stack = f"{best['stack']:7.3f} {best['alone'] / best['stack']:6.2f}" if "stack" in best else "      -      -"
    ratio = best["loop"] / best["engine"]
    ran = f"{best['loop']:15.3f} {best['engine']:7.3f} {ratio:6.2f}  {way}"
    return f"{flops * batch:8.1e}   {best['alone']:18.3f} {stack}   {ran}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", metavar="NAME", help="all models and examples, or those with such names")
    wanted = parser.parse_args().models
    if wanted is not None:
        every_model(wanted)
        return
    workload("small CNN", lambda: module("cnn-fashion-mnist", (1, 28, 28)), (1, 28, 28), 100, 50, 10)
    large = {"channels": (32, 64), "kernel": 5, "padding": "none", "hidden": (592,)}
    workload("large CNN", lambda: module("cnn", (3, 32, 32), **large), (3, 32, 32), 20, 100, 32)


if __name__ == "__main__":
    main()
