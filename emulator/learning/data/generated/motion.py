"""Made-up USC-HAD: gravity, steps and turning as mixtures of sinusoids, by activity and by person, as .mat files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emulator.rng import stream

RATE_HZ = 100
SECONDS = 8.0  # of a trial, on average


@dataclass(frozen=True)
class Activity:
    """What the sensor feels: where down is, how often and how hard steps come, how the body sways, how a lift pulls."""

    name: str
    down: tuple[float, float, float]
    step_hz: float
    step_g: float
    sway_dps: tuple[float, float, float]
    pull_g: float = 0.0


# In the order and under the names of the published set; the figures are made up.
ACTIVITIES = (
    Activity("walking-forward", (1, 0, 0), 1.8, 0.25, (10, 25, 15)),
    Activity("walking-left", (1, 0, 0), 1.7, 0.25, (35, 25, 15)),
    Activity("walking-right", (1, 0, 0), 1.7, 0.25, (-35, 25, 15)),
    Activity("walking-upstairs", (0.97, 0, 0.25), 1.4, 0.3, (10, 15, 45)),
    Activity("walking-downstairs", (0.97, 0, -0.25), 2.1, 0.45, (10, 15, 35)),
    Activity("running-forward", (1, 0, 0), 2.8, 0.9, (20, 60, 40)),
    Activity("jumping", (1, 0, 0), 2.2, 1.3, (5, 10, 80)),
    Activity("sitting", (0.7, 0, 0.7), 0.3, 0.005, (0.5, 0.5, 0.5)),
    Activity("standing", (1, 0, 0), 0.4, 0.008, (2, 2, 2)),
    Activity("sleeping", (0, 1, 0), 0.25, 0.004, (0.3, 0.3, 0.3)),
    Activity("elevator-up", (1, 0, 0), 0.4, 0.008, (1, 1, 1), 0.08),
    Activity("elevator-down", (1, 0, 0), 0.4, 0.008, (1, 1, 1), -0.08),
)


def write(folder: Path, owners: int, samples: int, seed: int) -> None:
    """Writes ``owners`` subjects with ``samples`` trials of each of twelve activities.

    A subject has a pace, a strength, and a sensor that sits a little askew.
    """
    for subject in range(1, owners + 1):
        rng = stream(seed, "generated", "motion", subject)
        pace, strength, askew = rng.uniform(0.85, 1.15), rng.uniform(0.75, 1.3), _askew(rng)
        (folder / f"Subject{subject}").mkdir()
        for number, activity in enumerate(ACTIVITIES, start=1):
            for trial in range(1, samples + 1):
                readings = _trial(activity, pace * rng.uniform(0.97, 1.03), strength, rng)
                readings = np.hstack([readings[:, :3] @ askew, readings[:, 3:] @ askew])
                content = {
                    "title": "made-up data in the format of USC-HAD",
                    "subject": str(subject),
                    "activity": activity.name,
                    "activity_number": str(number),
                    "trial": str(trial),
                    "sensor_readings": np.round(readings, 6),
                }
                (folder / f"Subject{subject}" / f"a{number}t{trial}.mat").write_bytes(_mat(content))


def _askew(rng: np.random.Generator) -> np.ndarray:
    """A rotation by a few degrees about a random axis (Rodrigues' formula)."""
    x, y, z = (axis := rng.standard_normal(3)) / np.linalg.norm(axis)
    angle = rng.uniform(0, 0.2)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    result: np.ndarray = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    return result


def _trial(activity: Activity, pace: float, strength: float, rng: np.random.Generator) -> np.ndarray:
    """Acceleration in g and turning in degrees a second, float64 [readings, 6]."""
    time_s = np.arange(int(RATE_HZ * SECONDS * rng.uniform(0.9, 1.1))) / RATE_HZ
    phase = 2 * np.pi * (activity.step_hz * pace * time_s + rng.random())
    beat = np.stack([np.sin(phase) + 0.4 * np.sin(2 * phase), 0.4 * np.sin(phase / 2), 0.5 * np.cos(phase)], axis=1)
    acceleration = np.array(activity.down) + strength * activity.step_g * beat
    acceleration[:, 0] += activity.pull_g
    sway = np.stack([1 + np.sin(phase / 2), np.sin(phase + 1), np.cos(phase)], axis=1) * activity.sway_dps
    noise = rng.standard_normal((len(time_s), 6)) * ([0.01] * 3 + [1.0] * 3)
    result: np.ndarray = np.hstack([acceleration, strength * sway]) + noise
    return result


def _mat(content: Mapping[str, object]) -> bytes:
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, dict(content))
    # The format begins with 116 bytes of text, where scipy puts the time: the same data shall be the same file.
    return b"MATLAB 5.0 MAT-file, made up".ljust(116) + file.getvalue()[116:]
