"""Prints how far device profiles are off: from published figures of boards, and from training on this host.

Run it as ``python benchmarks/boards.py`` from a source tree; about a minute or two. ``--published`` prints the published figures
alone. Times on this host are the shortest of several, so that other work on it adds as little as possible.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BATCHES = (8, 32)
SPAN_S = 0.15
CALIBRATED = ("lenet5", "cnn-mnist", "resnet-3block")


def print_published() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "devices"))
    from published import compared

    print("Published figures. 'without': error of a profile that is fitted to the other figures alone.")
    print(f"{'figure':72} {'measured':>9} {'profile':>9} {'error':>7} {'without':>8}  fitted to it")
    for row in compared():
        left_out = "" if math.isnan(row.without) else f"{100 * row.error_without:+7.0f}%"
        numbers = f"{row.measured:9.4g} {row.says:9.4g} {100 * row.error:+6.1f}% {left_out:>8}"
        print(f"{row.what:72} {numbers}  {row.fitted or 'no'}; {row.of}")


def print_host() -> None:
    import torch

    from devices.calibration import Timing, fit_speed, host_cpu, time_training
    from emulator import extend  # noqa: F401 (registers the models)
    from emulator.contracts.learning import models
    from emulator.learning.calibrating import DEPTHWISE_PROBE, trainable

    print(f"\nThis host: {host_cpu()}, PyTorch {torch.__version__} on {torch.get_num_threads()} threads.")
    names = [DEPTHWISE_PROBE, *(name for name in models.names() if name != "module")]
    timings: dict[tuple[str, int], Timing] = {}
    for name in names:
        network = trainable(name, max(BATCHES))
        for batch in BATCHES:
            timing = time_training(network.train, network.facts.forward_flops, batch, SPAN_S)
            timings[name, batch] = timing.with_kinds(network.facts.forward_flops, network.facts.by_kind)
            print(f"\r{name}, batch {batch}".ljust(60), end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    kinds = (*CALIBRATED, DEPTHWISE_PROBE, "char-lstm")
    plain = fit_speed([t for (name, _), t in timings.items() if name in CALIBRATED])
    by_kind = fit_speed([t for (name, _), t in timings.items() if name in kinds])
    for title, speed in (("one kind of layers", plain), ("kinds of layers", by_kind)):
        shares = "".join(f", {kind} {share:.3g}" for kind, share in speed.efficiency.items())
        figures = f"{speed.effective_speed / 1e9:.4g} GFLOP/s, {speed.batch_overhead_s * 1e3:.3g} ms a batch{shares}"
        print(f"  {title}: {figures}; off by {speed.misses} on what it is fitted to")
    print(
        f"{'model':20} {'batch':>5} {'samples/s':>10} {'one kind':>10} {'error':>7} {'kinds':>10} {'error':>7}  fitted"
    )
    errors: dict[str, list[float]] = {"one": [], "kinds": []}
    for (name, batch), timing in timings.items():
        samples = timing.batches * batch
        measured = samples / timing.seconds
        one = samples / plain.seconds(timing.flops, timing.batches)
        several = samples / by_kind.seconds(timing.flops, timing.batches, timing.by_kind)
        if name not in kinds:
            errors["one"].append(abs(one / measured - 1))
            errors["kinds"].append(abs(several / measured - 1))
        said = (
            f"{one:10,.1f} {100 * (one / measured - 1):+6.0f}% {several:10,.1f} {100 * (several / measured - 1):+6.0f}%"
        )
        print(f"{name:20} {batch:5} {measured:10,.1f} {said}  {'yes' if name in kinds else ''}")
    means = {name: 100 * sum(each) / len(each) for name, each in errors.items()}
    print(
        f"mean error of models that it is not fitted to: {means['one']:.0f} % with one kind, {means['kinds']:.0f} % with kinds"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", action="store_true", help="do not measure this host")
    arguments = parser.parse_args()
    print_published()
    if not arguments.published:
        print_host()


if __name__ == "__main__":
    main()
