"""What distilled images are worth, and how long distilling takes.

    python benchmarks/distillation.py [--steps 300] [--draws 3] [--picture FILE]

For each data set, 10 images a class teach a kernel regressor and a small CNN (the project's own models and trainer): real ones
drawn at random, ones distilled from the whole training set, and ones distilled class by class, as clients of one class must.
Test accuracies, mean and spread over draws. Then the time of one client of S5: 100 images of 3×32×32 distilled from 500
samples with one thread. Fashion-MNIST is left out where it is not installed. ``--picture`` draws real and distilled images of
the last data set side by side.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn

from analysis.plots.images import plot
from emulator.contracts.learning import LocalRuleChoice, data_sets, local_rules, models
from emulator.errors import InputError
from emulator.learning.data.arrays import ArraySet
from emulator.learning.distillation import DistillationParams, centred, distil, distillation_flops, predict
from emulator.learning.extra_samples import Block, joined
from emulator.learning.facts import model_facts
from emulator.learning.flat import FlatModel
from emulator.learning.trainer import Trainer, TrainingData, TrainJob
from emulator.rng import stream

PER_CLASS = 10
SETS = {"digits": "cnn", "fashion-mnist": "cnn-fashion-mnist"}  # and the model that learns from it
EPOCHS = 200


def kernel_accuracy(made: Block, data: ArraySet, params: DistillationParams) -> float:
    scores = predict(made[0], centred(made[1], data.classes), torch.from_numpy(data.x_test), params)
    return float((scores.argmax(1).numpy() == data.y_test).mean())


def network_accuracies(name: str, made: list[Block], data: ArraySet) -> list[float]:
    """Of CNNs that are trained on these images alone, one for each block, side by side, from weights of their own."""
    plugin = models[SETS[name]]

    def module(draw: int) -> nn.Module:
        torch.manual_seed(draw)
        fresh: nn.Module = plugin.function(data.shape, data.classes, plugin.params())
        return fresh

    local = local_rules["sgd"].params(epochs=EPOCHS, batch_size=10, learning_rate=0.02, momentum=0.5)
    ends = np.cumsum([len(labels) for _, labels in made])
    samples = TrainingData(*joined(made), np.split(np.arange(ends[-1]), ends[:-1]))
    trainer = Trainer(module(0), samples, 0, model_facts(module(0), data.shape).forward_flops)
    rule = LocalRuleChoice("sgd", local)
    results = dict(trainer.train([TrainJob(FlatModel(module(i)).state, i, rule, 1, 0) for i in range(len(made))]))
    tested = FlatModel(module(0))
    tested.module.eval()
    accuracies = []
    with torch.inference_mode():
        for i in range(len(made)):
            tested.state.copy_(results[i].state)
            scores = torch.cat([tested.module(part) for part in torch.from_numpy(data.x_test).split(1000)])
            accuracies.append(float((scores.argmax(1).numpy() == data.y_test).mean()))
    return accuracies


def apart(x: Tensor, y: Tensor, params: DistillationParams, draw: int) -> tuple[Tensor, Tensor]:
    """As many images, those of each class distilled from samples of that class alone."""
    classes = int(y.max()) + 1
    each = params.model_copy(update={"images": params.images // classes})
    parts = [distil(x[y == c], y[y == c], classes, each, stream(draw, "benchmark", c)) for c in range(classes)]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def compare(name: str, data: ArraySet, params: DistillationParams, draws: int) -> tuple[Tensor, Block]:
    """Prints accuracies; the last draw's real images, and what was made of them."""
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    kinds: dict[str, list[Block]] = {"real": [], "distilled": [], "distilled class by class": []}
    seconds = []
    for draw in range(draws):
        real = params.model_copy(update={"steps": 0})
        kinds["real"].append(distil(x, y, data.classes, real, stream(draw, "benchmark")))
        began = time.process_time()
        kinds["distilled"].append(distil(x, y, data.classes, params, stream(draw, "benchmark")))
        seconds.append(time.process_time() - began)
        kinds["distilled class by class"].append(apart(x, y, params, draw))
    spent = f"{params.steps} steps, {statistics.median(seconds):.1f} s of one core"
    print(f"{name}: {params.images} images of {len(y):,} samples ({spent})")
    networks = iter(network_accuracies(name, [made for blocks in kinds.values() for made in blocks], data))
    for kind, blocks in kinds.items():
        kernel = [kernel_accuracy(made, data, params) for made in blocks]
        print(f"  {kind:25} kernel regression {told(kernel)}   CNN {told([next(networks) for _ in blocks])}")
    return kinds["real"][-1][0], kinds["distilled"][-1]


def told(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1%}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1%}{spread}"


def one_client(params: DistillationParams) -> None:
    x = torch.from_numpy(stream(0, "benchmark").normal(size=(500, 3, 32, 32)).astype(np.float32))
    y = torch.arange(500) % 10
    distil(x, y, 10, params.model_copy(update={"steps": 2}), stream(0, "warm up"))
    for batch in (500, 100):
        settings = params.model_copy(update={"images": 100, "batch_size": batch})
        began, cpu = time.perf_counter(), time.process_time()
        distil(x, y, 10, settings, stream(0, "benchmark"))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        flops = distillation_flops(500, settings, 3072, 10)
        steps = f"{settings.steps} steps of {batch} targets"
        print(f"  {steps}: {wall:.1f} s ({cpu:.1f} s of one core), {flops:.2e} FLOPs, {flops / cpu / 1e9:.0f} GFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--picture", help="file for a picture of real and distilled images")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in SETS:
        try:
            data = data_sets[name].function(data_sets[name].params())
        except InputError as error:
            print(f"{name}: left out ({error})")
            continue
        params = DistillationParams(images=PER_CLASS * data.classes, steps=args.steps)
        real, (images, labels) = compare(name, data, params, args.draws)
        if args.picture:
            rows = {"real": real.numpy(), f"after {args.steps} steps": images.numpy()}
            plot(rows, labels.numpy(), path=args.picture, title=f"Distilled images of {name}")
    print("one client, 100 images of 3×32×32 from 500 samples:")
    one_client(DistillationParams())


if __name__ == "__main__":
    main()
