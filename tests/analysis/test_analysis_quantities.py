from __future__ import annotations

import pytest

from analysis.quantities import AXES, accuracy_text, bytes_text, cost_text, energy_text, time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0042, "0.0042 s"), (1.234, "1.23 s"), (42.5, "42.5 s"),
        (59.94, "59.9 s"), (59.96, "1 min 00 s"),
        (303, "5 min 03 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min"), (11_100, "3 h 05 min"),
        (86_369, "23 h 59 min"), (86_399, "1 d 00 h"), (198_000, "2 d 07 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (512, "512 B"), (999, "999 B"), (1000, "1 kB"), (1024, "1.02 kB"), (999_499, "999 kB"),
        (999_500, "1 MB"), (12_340_000, "12.3 MB"), (1.2e9, "1.2 GB"), (5e18, "5,000 PB"),
    ],
)  # fmt: skip
def test_bytes(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_costs_energies_and_accuracies() -> None:
    assert [cost_text(v) for v in (0, 0.5, 9.876, 412, 412.4, 17_676.2)] == [
        "0 client-s", "0.5 client-s", "9.88 client-s", "412 client-s", "412 client-s", "17,676 client-s",
    ]  # fmt: skip
    assert [energy_text(v) for v in (0.25, 830, 4.07e6)] == ["0.25 J", "830 J", "4.07 MJ"]
    assert [accuracy_text(v) for v in (0, 0.6127, 1)] == ["0.0 %", "61.3 %", "100.0 %"]


@pytest.mark.parametrize(
    ("axis", "largest", "label"),
    [
        ("time", 0, "Emulated time (s)"),
        ("time", 119, "Emulated time (s)"),
        ("time", 120, "Emulated time (min)"),
        ("time", 7200, "Emulated time (h)"),
        ("bytes", 1999, "Data over all links (B)"),
        ("bytes", 5e6, "Data over all links (MB)"),
        ("bytes", 2e9, "Data over all links (GB)"),
        ("cost", 7199, "Cost (client-seconds)"),
        ("cost", 7200, "Cost (client-hours)"),
        ("round", 1e6, "Global round"),
    ],
)
def test_an_axis_takes_a_unit_that_suits_its_length(axis: str, largest: float, label: str) -> None:
    assert AXES[axis].label(AXES[axis].unit(largest)) == label
