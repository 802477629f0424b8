"""Times CoV-Grouping, and prints S2 Table 1 and S2 §5.1 with our figures beside the published ones.

Run it as ``python benchmarks/grouping.py``. The naive transcription and the fleet are those of the tests, so
this runs from a source tree only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MIN_SIZE, MAX_COV, ALPHA = 5, 0.5, 0.1


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The least time in seconds: the one with the least disturbance from the rest of the machine."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def print_times(table1: ModuleType, naive: ModuleType) -> None:
    from emulator.grouping.formation.cov import CovParams, cov

    params = CovParams(min_size=MIN_SIZE, max_cov=MAX_COV)
    print(f"CoV-Grouping, 10 labels, alpha {ALPHA}, MinGS {MIN_SIZE}, MaxCoV {MAX_COV}")
    fast_s = {}
    for clients, repeats in ((1_000, 20), (10_000, 5)):
        view = table1.fleet(clients, ALPHA, np.random.default_rng(0))
        fast_s[clients] = best_of(repeats, lambda v=view: cov(v, np.random.default_rng(1), params))  # type: ignore[misc]
        groups = cov(view, np.random.default_rng(1), params)
        print(f"  {clients:6} clients  {fast_s[clients]:8.4f} s  {len(groups)} groups  (best of {repeats})")
    view = table1.fleet(1_000, ALPHA, np.random.default_rng(0))
    start = time.perf_counter()
    expected = naive.naive_cov(view.label_counts, np.random.default_rng(1), MIN_SIZE, MAX_COV)
    naive_s = time.perf_counter() - start
    same = expected == cov(view, np.random.default_rng(1), params)
    print(f"    1000 clients  {naive_s:8.4f} s  plain Python, word for word; same groups: {same}")
    print(f"  ratio {naive_s / fast_s[1_000]:.0f} (the paper: 6 s for 1,000 clients, S2 §4.4)\n")


def print_table1(table1: ModuleType) -> None:
    print("S2 Table 1 over ten seeds: mean group size and mean CoV; sizes normal in [20, 200], mean 110, std 45")
    print("  alpha MaxCoV   size published  ours [least, most]      CoV published   ours")
    for (alpha, max_cov), (size, cov) in table1.PUBLISHED.items():
        ours = table1.measure(alpha, max_cov)
        sizes = f"{size:14.2f} {ours.mean_size:5.2f} [{ours.smallest:2}, {ours.largest:2}]"
        print(f"  {alpha:5} {max_cov:6}   {sizes}   {cov:14.2f}  {ours.mean_cov:5.3f}")
    print()


def print_sampling(table1: ModuleType) -> None:
    from emulator.grouping.sampling import log_probabilities
    from emulator.grouping.sampling.rules import SamplingParams, esrcov
    from emulator.grouping.view import GroupView

    print("S2 §5.1: share of probability of the top groups under ESRCoV, alpha 0.1, 40 seeds")
    print("  published: top 3 over 0.92, top 5 over 0.99, 60 groups")
    for max_cov in (0.5, 1.0):
        rows = []
        for seed in range(40):
            _, labels = table1.groups_of(0.1, max_cov, seed)
            log_p = log_probabilities(esrcov(GroupView(labels, labels.sum(axis=1)), SamplingParams(groups=12)))
            p = np.sort(np.exp(log_p))[::-1]
            rows.append((len(p), p[:3].sum(), p[:5].sum()))
        groups, top3, top5 = np.array(rows).T
        print(f"  MaxCoV {max_cov}, {groups.mean():.1f} groups")
        for name, top, bound in (("top 3", top3, 0.92), ("top 5", top5, 0.99)):
            over = np.mean(top > bound)
            print(f"    {name}: median {np.median(top):.4f}, least {top.min():.3f}, over {bound} in {over:.0%}")


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "grouping")]
    import naive_cov  # type: ignore[import-not-found]
    import table1  # type: ignore[import-not-found]

    print_times(table1, naive_cov)
    print_table1(table1)
    print_sampling(table1)


if __name__ == "__main__":
    main()
