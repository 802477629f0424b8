from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from scenario.command import Done, hfl

from devices import backdoor_detection, secure_aggregation
from devices.calibration import Speed, Timing, fit_curve, fit_speed
from devices.profile import find_profile
from devices.secagg.constants import find_constants
from devices.secagg.fit import fit_constants
from emulator.cli import calibrate

WATTS = ("--idle-watts", "3", "--compute-watts", "9.5", "--send-watts", "4", "--receive-watts", "4")


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[Timing]:
    """The timings that the command works with: real ones, kept for the test."""
    kept: list[Timing] = []
    original = calibrate.fit_speed

    def keep(timings: list[Timing]) -> Speed:
        kept.extend(timings)
        return original(timings)

    monkeypatch.setattr(calibrate, "fit_speed", keep)
    return kept


def test_a_device_is_calibrated(tmp_path: Path, timings: list[Timing]) -> None:
    file = tmp_path / "here.yaml"
    done = hfl("calibrate", "device", "--quick", "--threads", "1", "--title", "Here", "--out", file, *WATTS)
    assert done.code == 0, done.err
    profile = find_profile(str(file))
    speed = fit_speed(timings)
    source = " ".join(profile.source.split())
    assert (profile.name, profile.title) == ("here", "Here")
    assert profile.effective_speed == pytest.approx(speed.effective_speed, rel=1e-3)
    assert profile.batch_overhead == pytest.approx(speed.batch_overhead_s, rel=1e-3)
    assert f"it is off by {speed.misses}." in source
    assert f"off by {speed.misses}" in done.out
    assert (
        "training of lenet5, cnn-mnist, depth-wise blocks, char-lstm, char-gru on made-up samples in batches of 8, 32"
        in source
    )
    assert {kind for timing in timings for kind, _ in timing.by_kind} == {"depthwise", "recurrent"}
    for kind, share in speed.efficiency.items():
        assert getattr(profile.efficiency, kind) == pytest.approx(share, rel=1e-3)
    assert "Power: not measured; idle, compute, send, receive as given by the user." in source
    assert (profile.power.idle, profile.power.compute) == (3, 9.5)
    assert profile.core_slowdown is None  # nobody said whose constants it is to go with
    assert set(profile.group_operations) == {"secure-aggregation", "scaffold-secure-aggregation", "backdoor-detection"}
    assert all(curve.seconds(10) > 0 for curve in profile.group_operations.values())
    assert "training lenet5 in batches of 8" in done.err
    assert "training" not in done.out  # progress is not the result


def test_group_operations_can_come_from_the_published_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A made-up host of 50 GFLOP/s and 2 ms a batch.
    made_up = lambda train, flops, batch, span_s: Timing(3 * flops * batch, 1, 3 * flops * batch / 50e9 + 2e-3)  # noqa: E731
    monkeypatch.setattr(calibrate, "time_training", made_up)
    file = tmp_path / "here.yaml"
    power = ("--power-of", "laptop", "--idle-watts", "4.5")
    done = hfl("calibrate", "device", "--quick", "--model", "mlp", "--slowdown", "2.5", "--out", file, *power)
    assert done.code == 0, done.err
    profile = find_profile(str(file))
    assert (profile.effective_speed, profile.batch_overhead) == pytest.approx((50e9, 2e-3))
    source = " ".join(profile.source.split())
    assert "slowdown 2.5 of one core" in source
    assert "idle as given by the user; compute, send, receive taken from the profile 'laptop'" in source
    assert (profile.power.idle, profile.power.compute) == (4.5, find_profile("laptop").power.compute)
    expected = {
        "secure-aggregation": secure_aggregation.curve(100_000, 0.05, 2.5),
        "scaffold-secure-aggregation": secure_aggregation.curve(100_000, 0.05, 2.5, vectors=2),
        "backdoor-detection": backdoor_detection.curve(100_000, 50e9, 2.5),
    }
    assert profile.core_slowdown == 2.5
    words = ["--core-slowdown", "1", "--model", "mlp", "--slowdown", "2.5", "--overwrite", "--out", file, *power]
    assert hfl("calibrate", "device", "--quick", *words).code == 0
    assert yaml.safe_load(file.read_text())["core_slowdown"] == 1
    done = hfl("calibrate", "device", "--core-slowdown", "0", *power)
    assert done.code == 2
    assert "--core-slowdown must be greater than 0" in done.err
    for name, curve in expected.items():
        found = profile.group_operations[name]
        assert found.of(400_000).seconds(5) == pytest.approx(curve.of(400_000).seconds(5), rel=1e-3)
        assert (found.a, found.b, found.c) == pytest.approx((curve.a, curve.b, curve.c), rel=1e-3)


def test_secure_aggregation_is_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    original = calibrate._measure
    monkeypatch.setattr(calibrate, "_measure", lambda *arguments: kept.append(original(*arguments)) or kept[-1])
    file = tmp_path / "constants.yaml"
    options = ("--sizes", "2, 5,3", "--parameters", "500", "--dropout", "0.2", "--out", file)
    done = hfl("calibrate", "secure-aggregation", "--quick", *options)
    assert done.code == 0, done.err
    found = find_constants(str(file))
    source = " ".join(found.source.split())
    rows = kept[0]
    curve, fit = fit_curve((2, 3, 5), [row.client_s + row.server_s for row in rows])
    assert found.curve is not None
    assert (found.curve.a, found.curve.b, found.curve.c) == pytest.approx((curve.a, curve.b, curve.c), rel=1e-3)
    assert f"off by {fit.misses}." in source
    assert "groups of 2, 3, 5, vectors of 500 and 50 numbers, a share of 0.2 dropping out" in source
    assert "the shorter ones also against an active adversary" in source
    assert [rows[0].observations[0].group.adversary for rows in kept] == ["passive", "passive", "active"]
    fitted = fit_constants([each for rows in kept for row in rows for each in row.observations]).constants
    assert found.constants == fitted
    assert None not in (fitted.sign, fitted.verify)
    assert [line.split()[:2] for line in done.out.splitlines()[1:4]] == [["2", "0"], ["3", "0.6"], ["5", "1"]]
    assert "aggregating 500 numbers of 5 clients, 1 dropping out\n" in done.err
    assert "aggregating 50 numbers of 5 clients, 1 dropping out, with signatures\n" in done.err
    again = hfl("calibrate", "secure-aggregation", "--quick", *options)
    assert again == Done(2, "", f"error: {file} exists already; name another file with --out, or say --overwrite\n")


def test_constants_are_written_for_the_reference_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--sizes", "2,3,5", "--parameters", "500", "--dropout", "0.2", "--repeats", "1")
    kept, asked = [], []
    original = calibrate._measure

    def keep(*arguments):  # the second command gets what the first one measured
        asked.append(arguments[3])
        if len(kept) < 3:
            kept.append(original(*arguments))
            return kept[-1]
        return kept[len(asked) - 4]

    monkeypatch.setattr(calibrate, "_measure", keep)
    here, there = tmp_path / "here.yaml", tmp_path / "there.yaml"
    assert hfl("calibrate", "secure-aggregation", *options, "--out", here).code == 0
    assert hfl("calibrate", "secure-aggregation", *options, "--slowdown", "0.5", "--out", there).code == 0
    assert asked == [1] * 6
    measured, scaled = find_constants(str(here)), find_constants(str(there))
    for name, seconds in measured.constants:
        assert getattr(scaled.constants, name) == pytest.approx(2 * seconds, rel=1e-3)
    assert measured.curve is not None
    assert scaled.curve is not None
    assert scaled.curve.seconds(7) == pytest.approx(2 * measured.curve.seconds(7), rel=1e-3)
    command = "hfl calibrate secure-aggregation --sizes 2,3,5 --parameters 500 --dropout 0.2 --slowdown 0.5 --repeats 1"
    source = " ".join(scaled.source.split())
    assert f"Command: {command}" in source
    assert "All were divided by 0.5, the slowdown of a core here" in source
    assert "divided" not in measured.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("secure-aggregation", "--slowdown", "-1"), "--slowdown must be greater than 0, not -1"),
        (
            ("device",),
            "power cannot be measured from here; give --idle-watts, --compute-watts, --send-watts, --receive-watts, or name "
            "a profile with --power-of",
        ),
        (
            ("device", *WATTS[:6]),
            "power cannot be measured from here; give --receive-watts, or name a profile with --power-of",
        ),
        (("device", "--power-of", "lapptop"), "unknown device 'lapptop'; did you mean 'laptop'?"),
        (
            ("device", "--power-of", "laptop", "--compute-watts", "2"),
            "the power does not fit together: 'compute' (2 W) is below 'idle' (10 W); give what the whole device draws",
        ),
        (("device", *WATTS, "--model", "lenet"), "unknown model 'lenet'; did you mean 'lenet5'?"),
        (("device", *WATTS, "--model", "module"), "model 'module' needs parameters, so it cannot be used here"),
        (("device", *WATTS, "--slowdown", "0"), "--slowdown must be greater than 0, not 0"),
        (("device", *WATTS, "--out", "profile.txt"), "--out must end in .yaml, not 'profile.txt'"),
        (
            ("secure-aggregation", "--sizes", "1,2,3"),
            "--sizes must be whole numbers from 2 to 1000, such as 2,4,8, not '1,2,3'",
        ),
        (
            ("secure-aggregation", "--sizes", "2,four"),
            "--sizes must be whole numbers from 2 to 1000, such as 2,4,8, not '2,four'",
        ),
        (
            ("secure-aggregation", "--sizes", "4,8,8"),
            "--sizes must name at least three sizes, because the curve has three terms",
        ),
        (
            ("secure-aggregation", "--dropout", "0.5"),
            "--dropout must be between 0 and 1/3, because two thirds must be left, not 0.5",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hfl("calibrate", *arguments) == Done(2, "", f"error: {message}\n")
    assert not list(tmp_path.glob("*.*"))
