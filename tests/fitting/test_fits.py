"""Fits of a world to measured seconds: closed forms come back, noise within its errors, and what is not told stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scenario.command import TINY

from devices.profile import Curve
from emulator.fitting.base import Base, base_of
from emulator.fitting.fits import DeviceFit, Fit, fit
from emulator.fitting.links import LinkFit
from emulator.fitting.timings import BACKHAUL_DOWN, BACKHAUL_UP, DOWN, GROUP, TRAIN, UP
from emulator.learning.memo import Memo
from emulator.scenario import loads

KIND = "raspberry-pi-4b"


@pytest.fixture(scope="module")
def base() -> Base:
    return base_of(loads(TINY.replace("hidden: [8]", "hidden: [2000, 1000]"), "tiny.yaml"), Memo(None))


def truth(base: Base, **update: Any) -> Fit:
    """A world that is known: devices, clients, groups and links unlike those of the scenario."""
    profile = base.kinds[KIND]
    curve = Curve.model_construct(a=0.02, b=0.3, c=0.04, parameters=base.workload.parameters, proportional=None)
    known = profile.model_copy(
        update={
            "effective_speed": 2.5e9, "batch_overhead": 0.011,
            "group_operations": {**profile.group_operations, "secure-aggregation": curve},
        }
    )  # fmt: skip
    raw = np.geomspace(0.5, 2, len(base.clients))
    speeds = dict(zip(base.clients, (raw / np.exp(np.log(raw).mean())).tolist(), strict=True))
    links = {name: LinkFit(1e6 * (2 + c), 1e6 * (5 + 2 * c), 0.004 * (1 + c)) for c, name in enumerate(base.clients)}
    whole = Fit(base, {KIND: DeviceFit(known, speeds)}, links, LinkFit(2e7, 3e7, 0.008))
    return replace(whole, **update)


def measured(
    world: Fit, rounds: int = 6, noise: float = 0.0, sizes: tuple[int, ...] = (2, 3, 5, 8), batches: tuple[int, ...] = (4, 32),
    transfers: tuple[int, ...] = (400, 200_000),
) -> pd.DataFrame:  # fmt: skip
    """What would be measured in a world: every client does everything in every round."""
    rows: list[dict[str, Any]] = []

    def add(**row: Any) -> None:
        rows.append(
            {
                "through": False,
                "bytes": 0,
                "samples": 0,
                "batch_size": 0,
                "group_size": 0,
                "start_s": 0.0,
                "seconds": 0.0,
            }
            | row
        )

    for number in range(1, rounds + 1):
        for c, name in enumerate(world.base.clients):
            for size in transfers:
                add(round=number, client=name, phase=DOWN, bytes=size)
                add(round=number, client=name, phase=UP, bytes=size)
            add(round=number, client=name, phase=TRAIN, samples=20 + 3 * c, batch_size=batches[number % len(batches)])
            add(round=number, client=name, phase=GROUP, group_size=sizes[(c + number) % len(sizes)])
        for size in transfers:
            add(round=number, client="edge-0", phase=BACKHAUL_DOWN, bytes=size)
            add(round=number, client="edge-0", phase=BACKHAUL_UP, bytes=size)
    table = pd.DataFrame(rows)
    factors = np.random.default_rng(4).lognormal(0, noise, len(table)) if noise else 1.0
    return table.assign(seconds=world.predict(table) * factors)


def test_known_figures_come_back(base: Base) -> None:
    world = truth(base)
    found = fit(base, measured(world))
    device, known = found.devices[KIND], world.devices[KIND]
    assert device.separate
    assert device.profile.effective_speed == pytest.approx(known.profile.effective_speed, rel=1e-6)
    assert device.profile.batch_overhead == pytest.approx(known.profile.batch_overhead, rel=1e-6)
    assert device.speeds == pytest.approx(known.speeds, rel=1e-6)
    assert device.curve == "secure-aggregation"
    curve = device.profile.group_operations["secure-aggregation"]
    assert (curve.a, curve.b, curve.c) == pytest.approx((0.02, 0.3, 0.04), rel=1e-5)
    for name, link in [*found.links.items(), ("", found.backhaul)]:
        expected = world.links[name] if name else world.backhaul
        assert link is not None
        assert expected is not None
        assert (link.up_bps, link.down_bps) == pytest.approx((expected.up_bps, expected.down_bps), rel=1e-5)
        assert link.latency_s == pytest.approx(expected.latency_s, rel=1e-5)
        assert link.latency_fitted
        assert link.deviation_s == 0
    assert found.notes == ()


def test_noise_leaves_figures_within_their_errors(base: Base) -> None:
    world = truth(base)
    found = fit(base, measured(world, rounds=30, noise=0.05))
    device, known = found.devices[KIND], world.devices[KIND]
    assert device.profile.effective_speed == pytest.approx(known.profile.effective_speed, rel=0.05)
    assert device.profile.batch_overhead == pytest.approx(known.profile.batch_overhead, rel=0.05)
    assert device.speeds == pytest.approx(known.speeds, rel=0.05)
    assert device.deviation == pytest.approx(0.05, rel=0.3)
    off = []
    for name, link in found.links.items():
        expected = world.links[name]
        up_error, down_error, latency_error_s, _ = link.standard_errors
        off += [
            np.log(link.up_bps / expected.up_bps) / up_error, np.log(link.down_bps / expected.down_bps) / down_error,
            (link.latency_s - expected.latency_s) / latency_error_s,
        ]  # fmt: skip
    assert np.mean(np.abs(off) < 2) > 0.8  # standard errors, so 95 % were they exact
    assert np.abs(off).max() < 5


def test_one_batch_size_keeps_the_ratio_of_the_profile(base: Base) -> None:
    found = fit(base, measured(truth(base), batches=(8,)))
    before, device = base.kinds[KIND], found.devices[KIND]
    assert not device.separate
    assert device.profile.batch_overhead * device.profile.effective_speed == pytest.approx(
        before.batch_overhead * before.effective_speed
    )
    timings = measured(truth(base), batches=(8,))
    trained = (timings["phase"] == TRAIN).to_numpy()
    assert found.predict(timings)[trained] == pytest.approx(timings["seconds"].to_numpy()[trained], rel=1e-6)
    assert any("do not tell the speed" in note for note in found.notes)


def test_one_size_of_transfers_keeps_the_latency(base: Base) -> None:
    timings = measured(truth(base), transfers=(200_000,))
    found = fit(base, timings)
    assert {link.latency_s for link in found.links.values()} == {0.02}
    assert not any(link.latency_fitted for link in found.links.values())
    assert any("latency stays as the scenario has it" in note for note in found.notes)
    up = (timings["phase"] == UP).to_numpy()
    assert found.predict(timings)[up] == pytest.approx(timings["seconds"].to_numpy()[up], rel=1e-6)


def test_few_sizes_of_groups_make_a_factor(base: Base) -> None:
    profile = base.kinds[KIND]
    slower = (
        truth(base)
        .devices[KIND]
        .profile.model_copy(
            update={"group_operations": {name: c.faster(0.5) for name, c in profile.group_operations.items()}}
        )
    )
    world = truth(base, devices={KIND: DeviceFit(slower, dict.fromkeys(base.clients, 1.0))})
    found = fit(base, measured(world, sizes=(3,)))
    assert found.devices[KIND].group_factor == pytest.approx(2, rel=1e-9)
    assert found.devices[KIND].curve == ""
    fitted = found.devices[KIND].profile
    assert profile.core_slowdown is not None
    assert fitted.core_slowdown == pytest.approx(2 * profile.core_slowdown)


def test_clients_of_a_kind_may_be_taken_to_be_alike(base: Base) -> None:
    found = fit(base, measured(truth(base)), by_client=False)
    assert set(found.devices[KIND].speeds.values()) == {1.0}
    assert len(set(found.links.values())) == 1
    assert found.devices[KIND].deviation > 0.1  # they are not


def test_what_was_not_measured_stays_as_it_was(base: Base) -> None:
    timings = measured(truth(base))
    found = fit(base, timings[(timings["client"] != "client-3") & (timings["phase"] != GROUP)])
    link = found.links["client-3"]
    assert (link.up_bps, link.down_bps, link.latency_s, link.transfers) == (8e6, 16e6, 0.02, 0)
    assert found.devices[KIND].speeds["client-3"] == 1.0
    assert found.devices[KIND].profile.group_operations == base.kinds[KIND].group_operations
    nothing = fit(base, timings[timings["phase"] == UP])
    assert nothing.devices[KIND].profile.effective_speed == base.kinds[KIND].effective_speed
    assert nothing.devices[KIND].spread == {}


def test_late_transfers_are_jitter_of_their_kind(base: Base) -> None:
    timings = measured(truth(base), rounds=15)
    rng = np.random.default_rng(8)
    for draw, exponential in (
        (rng.exponential(0.02, len(timings)), True),
        (rng.normal(0, 0.0005, len(timings)), False),
    ):
        found = fit(base, timings.assign(seconds=np.abs(timings["seconds"] + draw)))
        links = [found.links[name] for name in base.clients]
        assert all(link.overhead_s >= link.deviation_s * (1 - 1e-9) for link in links if link.exponential)
        assert np.mean([link.exponential == exponential for link in links]) > 0.7
        assert np.mean([link.deviation_s for link in links]) == pytest.approx(np.std(draw), rel=0.3)
        both = timings["phase"].isin((UP, DOWN)).to_numpy()
        taken = (timings["seconds"].to_numpy() + draw)[both]
        assert found.predict(timings)[both].mean() == pytest.approx(taken.mean(), rel=0.05)


def test_the_files_of_a_fit_are_the_world_that_was_fitted(base: Base, tmp_path: Path) -> None:
    from emulator.fitting import files
    from emulator.scenario.load import check, parse_changes, with_changes
    from emulator.world.fleet import Fleet

    world = truth(base)
    found = fit(base, measured(world))
    written = files.write(found, tmp_path / "out", "a test")
    loaded = check(with_changes(base.loaded.document, parse_changes(f"@{written[0]}")))
    fleet = Fleet(loaded.scenario.topology, 3)
    for c, name in enumerate(base.clients):
        expected = world.devices[KIND].profile.faster(world.devices[KIND].speeds[name], "")
        assert fleet.client_devices[c].effective_speed == pytest.approx(expected.effective_speed, rel=1e-4)
        assert fleet.client_devices[c].batch_overhead == pytest.approx(expected.batch_overhead, rel=1e-4)
        (leg,) = fleet.route(name, fleet.home(c))
        assert leg.bandwidth_bps == pytest.approx(world.links[name].up_bps, rel=1e-4)
        assert leg.latency_s == pytest.approx(world.links[name].latency_s, rel=1e-4)
        assert leg.jitter is None
    backhaul = loaded.scenario.topology.links.backhaul
    assert (backhaul.up, backhaul.down, backhaul.latency) == pytest.approx((2e7, 3e7, 0.008), rel=1e-4)
    # What was fitted predicts itself: nothing is left to fit.
    again = base_of(loaded, Memo(None))
    timings = measured(world)
    known = fit(again, timings[timings["phase"] == "nothing"]).predict(timings)
    clients = ~timings["client"].str.startswith("edge").to_numpy()
    assert known[clients] == pytest.approx(timings["seconds"].to_numpy()[clients], rel=1e-3)
