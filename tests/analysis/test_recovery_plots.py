"""Pictures of recovered images: rows, distances and seeds as they stand in run folders, and folders that have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from analysis_samples import metrics, write_folder
from matplotlib.colors import to_rgba

from analysis.plots import images, recovered, recovery
from analysis.plots.style import look
from analysis.runs import load_run
from emulator.errors import InputError

HEADER = "at,round,accuracy,distance,untrained,own,floor\n"


def attacked(folder: Path, distances: tuple[float, ...] = (90.0, 40.0), label: str = "fedseq", seed: int = 0) -> Path:
    """A run whose models were attacked at 30 % and 60 %: images of the k-th attack are all k."""
    write_folder(folder, metrics([0.1, 0.35, 0.7]), label=label, seed=seed)
    points = enumerate(zip((0.3, 0.6)[: len(distances)], distances, strict=True), 1)
    rows = [(at, k, at + 0.05 + 0.02 * seed, d, 500.0, 30.0, 2.0) for k, (at, d) in points]
    (folder / "recovered.csv").write_text(HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows))
    made = np.stack(
        [np.stack([np.full((4, 1, 5, 6), k), np.linspace(0, 3, 120).reshape(4, 1, 5, 6)]) for k in (1.0, 2.0)]
    )
    np.save(folder / "recovered.npy", made[: len(rows)])
    return folder


def test_rows_are_private_images_and_those_of_each_attack(tmp_path: Path) -> None:
    figure = recovered.plot([attacked(tmp_path / "a")], tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000
    assert len(figure.axes) == 3 * 4
    assert [figure.axes[i].get_ylabel() for i in (0, 4, 8)] == ["private", "35.0 %", "65.0 %"]
    shown = [float(np.asarray(figure.axes[i].images[0].get_array()).mean()) for i in (4, 8)]
    assert shown == pytest.approx([1 / 3, 2 / 3])  # of the range of the private images, from 0 to 3


def test_several_series_are_named_and_of_several_seeds_the_first_is_shown(tmp_path: Path) -> None:
    folders = [attacked(tmp_path / "a"), attacked(tmp_path / "b", (80.0,), "fedavg")]
    figure = recovered.plot(folders)
    names = [box.get_ylabel() for box in figure.axes[::4]]
    assert names == ["fedseq\nprivate", "fedseq\n35.0 %", "fedseq\n65.0 %", "fedavg\nprivate", "fedavg\n35.0 %"]


def test_distances_are_means_over_the_seeds_that_reached_an_accuracy(tmp_path: Path) -> None:
    folders = [attacked(tmp_path / "a", (90.0, 40.0)), attacked(tmp_path / "b", (110.0,), seed=1)]
    figure = recovery.plot(folders, tmp_path / "x.svg")
    (box,) = figure.axes
    line = next(each for each in box.lines if to_rgba(each.get_color()) == to_rgba(look(0).colour))
    assert list(line.get_xdata()) == pytest.approx([36.0, 65.0])
    assert list(line.get_ydata()) == pytest.approx([100.0, 40.0])
    floor = next(each for each in box.lines if each is not line)
    assert list(floor.get_ydata()) == [2.0, 2.0]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["fedseq", "two halves of the private images"]


def test_runs_without_recovered_images_say_why(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "plain", metrics([0.1, 0.5]))
    for kind in (recovered, recovery):
        with pytest.raises(InputError, match="no attack 'gan-recovery', or no evaluation reached an accuracy"):
            kind.plot([folder])
    damaged = attacked(tmp_path / "damaged")
    np.save(damaged / "recovered.npy", np.zeros((1, 2, 4, 1, 5, 6)))
    with pytest.raises(InputError, match="it does not fit"):
        _ = recovered.images_of(load_run(damaged))
    (damaged / "recovered.npy").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is damaged"):
        _ = recovered.images_of(load_run(damaged))


def test_images_without_labels_have_no_titles_and_one_scale() -> None:
    x = np.linspace(0, 1, 15 * 4).reshape(15, 1, 2, 2)
    figure = images.plot({"real": x, "made": x / 2}, None)
    assert len(figure.axes) == 20
    assert not any(box.get_title() for box in figure.axes)
    np.testing.assert_allclose(np.asarray(figure.axes[10].images[0].get_array()), x[0, 0] / 2)
    with pytest.raises(InputError, match="at least one row"):
        images.plot({}, None)
