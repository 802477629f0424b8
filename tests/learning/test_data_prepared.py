"""Prepared samples that are kept on the machine: the same bits, prepared once, mapped everywhere, and never in a run's way."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import choose, in_processes, own_npz, same
from scenario.command import hfl

from emulator import plugins
from emulator.contracts.learning import DataSetChoice, data_sets
from emulator.errors import InputError
from emulator.learning.data import ArraySet, prepared, read
from emulator.learning.data.mapped import is_mapped
from emulator.learning.data.synthetic import SyntheticParams

KINDS: dict[str, dict[str, Any]] = {
    "speech-commands": {"generated": {"owners": 3, "samples": 6}},
    "usc-had": {"generated": {"owners": 2, "samples": 2}},
    "leaf": {"task": "femnist", "generated": {"owners": 2, "samples": 8}},
}


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kinds of the sets that were read, in their order."""
    found: list[str] = []
    reading = DataSetChoice.__call__

    def call(self: DataSetChoice) -> ArraySet:
        found.append(self.kind)
        return reading(self)

    with monkeypatch.context() as patch:
        patch.setattr(DataSetChoice, "__call__", call)
        yield found


@pytest.mark.parametrize("kind", [*KINDS, "npz", "image-folder"])
def test_samples_are_the_same_bit_for_bit_without_with_and_from_the_cache(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "npz":
        chosen = own_npz(tmp_path / "own.npz")
    elif kind == "image-folder":
        chosen = choose(kind, path=str(pictures(tmp_path)), size=[5, 4], standardise=True, owners="prefix")
    else:
        chosen = choose(kind, **KINDS[kind])
    with counted(monkeypatch) as times:
        with monkeypatch.context() as patch:
            patch.setenv(prepared.PLACE, "off")
            plain = read(chosen)
        assert not is_mapped(plain.x_train)
        assert prepared.entries() == []
        cold, warm = read(chosen), read(chosen)
    assert times == [kind] * 2
    assert same(plain, cold)
    assert same(plain, warm)
    for x in (cold.x_train, cold.x_test, warm.x_train, warm.x_test):
        assert is_mapped(x)
    (entry,) = prepared.entries()
    assert entry.kind == kind
    assert not list(entry.folder.glob("made-*"))


def pictures(folder: Path) -> Path:
    from PIL import Image

    rng = np.random.default_rng(1)
    for name in ("cat", "dog"):
        (folder / "pictures" / name).mkdir(parents=True)
        for i in range(5):
            pixels = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "pictures" / name / f"p{i % 2}_{i}.png")
    return folder / "pictures"


def test_large_synthetic_sets_are_kept_and_small_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose("synthetic", train_samples=300, test_samples=40)
    plain = read(chosen)
    assert not prepared.entries()
    monkeypatch.setattr("emulator.learning.data.synthetic.KEPT_FROM_BYTES", 4 * 340 * 64)
    monkeypatch.setattr("emulator.learning.data.synthetic.TOGETHER", 7)
    assert same(plain, read(chosen))
    assert len(prepared.entries()) == 1
    assert not choose("digits").prepared
    assert SyntheticParams(train_samples=299, test_samples=40).prepared == 0


def test_a_changed_source_is_prepared_again_and_a_moved_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(own_npz(tmp_path / "own.npz"))
    before = first.x_train.copy()
    with counted(monkeypatch) as times:
        (tmp_path / "own.npz").rename(tmp_path / "moved.npz")
        assert same(read(choose("npz", path=str(tmp_path / "moved.npz"), standardise=True)), first)
        assert times == []
        plainly = read(choose("npz", path=str(tmp_path / "moved.npz")))
        assert not same(plainly, first)
        changed = own_npz(tmp_path / "own.npz", samples=44)
        assert len(read(changed).x_train) == 44
        assert times == ["npz", "npz"]
    monkeypatch.setattr(prepared, "FORMAT", prepared.FORMAT + 1)
    with counted(monkeypatch) as times:
        read(changed)
        assert times == ["npz"]
    assert np.array_equal(first.x_train, before)


def test_a_source_that_changes_while_it_is_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = own_npz(tmp_path / "own.npz")
    reading = DataSetChoice.__call__

    def call(self: DataSetChoice) -> ArraySet:
        own_npz(tmp_path / "own.npz", samples=60)
        return reading(self)

    monkeypatch.setattr(DataSetChoice, "__call__", call)
    assert len(read(chosen).x_train) == 60
    assert not prepared.entries()


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff" * 8)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda folder: os.truncate(folder / "x_train.npy", 500),
    "longer": lambda folder: os.truncate(folder / "x_test.npy", 99_999),
    "overwritten": lambda folder: overwrite(folder / "x_train.npy"),
    "labels": lambda folder: overwrite(folder / "y_train.npy"),
    "missing": lambda folder: (folder / "x_test.npy").unlink(),
    "facts": lambda folder: (folder / prepared.FACTS).write_text('{"files": {}}'),
    "no facts": lambda folder: (folder / prepared.FACTS).unlink(),
    "replaced": lambda folder: np.save(folder / "x_train.npy", np.zeros((40, 1, 6, 6), np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_prepared_again(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = own_npz(tmp_path / "own.npz")
    whole = chosen()
    read(chosen)
    (entry,) = prepared.entries()
    DAMAGE[damage](entry.folder)
    with counted(monkeypatch) as times, caplog.at_level(logging.WARNING):
        assert same(read(chosen), whole)
        assert same(read(chosen), whole)
    assert times == ["npz"]
    assert ["is damaged" in record.getMessage() for record in caplog.records] == [True]
    assert len(prepared.entries()) == 1
    assert not list(entry.folder.parent.glob(".*"))


def test_what_killed_processes_left_is_swept_away(tmp_path: Path) -> None:
    chosen = own_npz(tmp_path / "own.npz")
    read(chosen)
    (entry,) = prepared.entries()
    left = [entry.folder.with_name(f".{name}.1-2.part") for name in (entry.folder.name, "0123")]
    for folder in left:
        folder.mkdir()
        (folder / "made-0.npy").write_bytes(b"half")
    prepared._remove(entry.folder)
    read(chosen)
    assert [folder.exists() for folder in left] == [False, False]


@pytest.mark.parametrize("place", ["file", "read-only", "full"])
def test_a_disk_that_cannot_be_written_to_fails_no_run(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = own_npz(tmp_path / "own.npz")
    folder = tmp_path / "kept"
    monkeypatch.setenv(prepared.PLACE, str(folder))
    if place == "file":
        folder.write_text("")
    elif place == "read-only":
        folder.mkdir(mode=0o500)
        if os.access(folder, os.W_OK):  # whoever is root may write everywhere

            def refuse(self: Path, *_: object, **__: object) -> None:
                raise PermissionError(13, "Permission denied", str(self))

            monkeypatch.setattr(Path, "mkdir", refuse)
    else:

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        monkeypatch.setattr("numpy.save", full)
    with caplog.at_level(logging.WARNING):
        found, again = read(chosen), read(chosen)
    monkeypatch.undo()
    assert same(found, chosen())
    assert same(again, found)
    assert [record.getMessage().startswith("prepared data cannot be kept") for record in caplog.records] == [True]
    assert place == "file" or not list(folder.glob(".*.part"))


def test_the_least_recently_used_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sets = [own_npz(tmp_path / f"{samples}.npz", samples=samples) for samples in (40, 41, 42)]
    mapped_before = read(sets[0])
    before = mapped_before.x_train.copy()
    size = prepared.entries()[0].size_bytes
    monkeypatch.setenv(prepared.LIMIT, f"{2.5 * size / 1e3} kB")
    read(sets[1])
    os.utime(prepared.entries()[-1].folder / prepared.FACTS, (1, 1))  # the second was not used for years
    read(sets[2])
    with counted(monkeypatch) as times:
        read(sets[0])
        read(sets[2])
        assert times == []
        read(sets[1])  # the first goes now
        assert times == ["npz"]
    assert len(prepared.entries()) == 2
    assert np.array_equal(mapped_before.x_train, before)  # who has mapped it keeps it
    monkeypatch.setenv(prepared.LIMIT, "1 kB")
    large = own_npz(tmp_path / "large.npz", samples=100)
    found = read(large)
    assert is_mapped(found.x_train)
    assert same(found, large())
    assert len(prepared.entries()) == 2
    assert "is not kept: HFL_PREPARED_LIMIT allows" in caplog.text
    monkeypatch.setenv(prepared.LIMIT, "much")
    with pytest.raises(InputError, match="HFL_PREPARED_LIMIT: 'much' is not a size"):
        read(large)


def test_the_command_shows_and_clears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing is kept yet" in hfl("prepared", "stats").out
    read(own_npz(tmp_path / "own.npz"))
    shown = hfl("prepared", "stats").out
    assert " of 20 GB" in shown
    assert "npz" in shown
    assert hfl("prepared", "clear").out == "1 data set deleted\n"
    assert prepared.entries() == []
    monkeypatch.setenv(prepared.PLACE, "off")
    assert hfl("prepared", "stats").out == "nothing is kept: HFL_PREPARED is 'off'\n"


def test_of_processes_that_begin_at_once_one_prepares(tmp_path: Path) -> None:
    chosen = own_npz(tmp_path / "own.npz")
    code = f"""
import hashlib, json, time
from emulator.contracts.learning import DataSetChoice, data_sets
from emulator.learning.data import read
count, reading = [], DataSetChoice.__call__
def call(self):
    count.append(1)
    time.sleep(0.3)
    return reading(self)
DataSetChoice.__call__ = call
params = data_sets["npz"].params(path={str(tmp_path / "own.npz")!r}, standardise=True)
found = read(DataSetChoice("npz", params))
print(json.dumps([len(count), hashlib.sha256(found.x_train.tobytes() + found.y_train.tobytes()).hexdigest()]))
"""
    found = in_processes(code, 3)
    assert sorted(count for count, _ in found) == [0, 0, 1]
    assert len({digest for _, digest in found}) == 1
    assert same(read(chosen), chosen())


PLUGIN = '''
from pathlib import Path

import numpy as np

from emulator.extend import ArraySet, DataSetFacts, Field, Params, data_sets, sample_array


class Shades(Params):
    shade: float = Field(0.5, description="how bright")


@data_sets.register("own-shades", Shades, DataSetFacts(fingerprint=lambda params: "same"{fact}))
def shades(params):
    """Images of one shade."""
    with open("read.txt", "a") as file:
        file.write("x")
    x = sample_array((40, 1, 4, 4))
    x[:] = params.shade * {factor}
    return ArraySet(x, np.arange(40) % 4, x[:8].copy(), np.arange(8) % 4, classes=4)
'''


def test_a_set_of_a_plug_in_is_kept_if_it_says_so_with_its_code_and_parameters(
    plugin_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = plugin_home / "read.txt"

    def brightness(name: str, fact: str, factor: int, **params: Any) -> tuple[float, bool]:
        data_sets._plugins.pop("own-shades", None)
        (plugin_home / f"{name}.py").write_text(PLUGIN.replace("{fact}", fact).replace("{factor}", str(factor)))
        plugins.load([f"{name}.py"])
        x = read(choose("own-shades", **params)).x_train
        return float(x[0, 0, 0, 0]), is_mapped(x)

    assert [brightness("plain", "", 1) for _ in range(2)] == [(0.5, False)] * 2
    assert len(times.read_text()) == 2
    assert brightness("kept", ", prepared=1", 1) == (0.5, True)
    assert len(times.read_text()) == 3
    chosen = choose("own-shades")
    assert read(chosen).x_train[0, 0, 0, 0] == 0.5
    assert len(times.read_text()) == 3
    assert brightness("kept", ", prepared=1", 1, shade=0.25) == (
        0.25,
        True,
    )  # its fingerprint does not know the parameter
    assert brightness("other", ", prepared=1", 3) == (1.5, True)  # nor its code
    assert len(times.read_text()) == 5
