"""Prints how far device profiles are off: from published figures of boards, and from training on this host.

Run it as ``python benchmarks/boards.py`` from a source tree; about a minute or two. ``--published`` prints the published figures
alone. Times on this host are the shortest of several sweeps over all models, so that other work on it adds as little as possible.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BATCHES = (8, 32)
SPAN_S, SWEEPS = 0.1, 3


def print_published() -> None:
    from published import compared

    print("Published figures. 'without': error of a profile that is fitted to the other figures alone.")
    print(f"{'figure':72} {'measured':>9} {'profile':>9} {'error':>7} {'without':>8}  fitted to it")
    for row in compared():
        left_out = "" if math.isnan(row.without) else f"{100 * row.error_without:+7.0f}%"
        numbers = f"{row.measured:9.4g} {row.says:9.4g} {100 * row.error:+6.1f}% {left_out:>8}"
        print(f"{row.what:72} {numbers}  {row.fitted or 'no'}; {row.of}")


def print_host(threads: int) -> None:
    import torch
    from published_networks import NETWORKS

    from devices.calibration import Timing, fit_speed, host_cpu, time_training
    from emulator.cli.calibrate import KINDS, MODELS
    from emulator.contracts.learning import models
    from emulator.learning.calibrating import DEPTHWISE_PROBE, trainable, trainable_module

    torch.set_num_threads(threads)
    print(f"\nThis host: {host_cpu()}, PyTorch {torch.__version__}, threads: {threads}.")
    names = [DEPTHWISE_PROBE, *(name for name in models.names() if name != "module")]
    timings: dict[tuple[str, int], Timing] = {}
    networks = {name: trainable(name, max(BATCHES)) for name in names}
    for name in ("MobileNetV3-Small", "DSCNN"):  # no model of scenarios has depth-wise layers
        make, shape = NETWORKS[name]
        networks[f"({name})"] = trainable_module(make(), shape, max(BATCHES))
    networks["lenet5"].train(max(BATCHES), 50)  # what is slow the first time only
    for sweep in range(SWEEPS):  # a burst of other work hits one of them, and the best counts
        for name, network in networks.items():
            for batch in BATCHES:
                print(f"\rsweep {sweep + 1}: {name}, batch {batch}".ljust(60), end="", file=sys.stderr, flush=True)
                timing = time_training(network.train, network.facts.forward_flops, batch, SPAN_S, repeats=1)
                best = timings.get((name, batch), timing)
                if timing.seconds / timing.batches <= best.seconds / best.batches:
                    timings[name, batch] = timing.with_kinds(network.facts.forward_flops, network.facts.by_kind)
    print(file=sys.stderr)
    kinds = (*MODELS, *KINDS)
    plain = fit_speed([t for (name, _), t in timings.items() if name in MODELS])
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
    parser.add_argument("--threads", type=int, default=1, help="that train; one is disturbed least by other work")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests" / "devices"))
    print_published()
    if not arguments.published:
        print_host(arguments.threads)


if __name__ == "__main__":
    main()
