from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE_S

from devices.power import energy_j
from devices.profile import find_profile
from emulator import ledger
from emulator.accounting import Meter, totals_of
from emulator.learning.memo import Memo
from emulator.ledger import Ledger, Tag, read
from emulator.run import execute
from emulator.scenario import Loaded


def fill(rows: Ledger, count: int) -> None:
    for i in range(count):
        tag = Tag("training", i % 7, i % 3, i % 2)
        rows.add(ledger.COMPUTE, f"client-{i % 5}", float(i), i + 0.25, tag, samples=i)
        rows.add(
            ledger.TRANSFER, f"client-{i % 5}", i + 0.25, i + 0.75, tag, "edge-0", 1000 + i, hop=ledger.CLIENT_SERVER
        )


def test_spilled_or_not_the_file_has_every_row_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Ledger()
    fill(whole, 50)
    whole.write(tmp_path / "whole.parquet")
    monkeypatch.setattr(Ledger, "CHUNK", 7)
    spilled = Ledger(tmp_path / "spill")
    powers = {f"client-{i}": find_profile("laptop").power for i in range(5)}
    meter = Meter(spilled, powers)
    fill(spilled, 50)
    assert len(spilled.rows) < 7
    assert meter.totals() == totals_of(whole.rows, powers)
    spilled.write(tmp_path / "spilled.parquet")
    one, other = read(tmp_path / "whole.parquet"), read(tmp_path / "spilled.parquet")
    assert one.astype(str).equals(other.astype(str))
    assert [tuple(r) for r in one.itertuples(index=False)] == [tuple(r) for r in whole.rows]
    assert not (tmp_path / "spill").exists()


@pytest.mark.parametrize("chunk", [5, 30, 1000])
def test_rows_that_come_together_are_rows_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(Ledger, "CHUNK", chunk)
    powers = {f"client-{i}": find_profile("laptop").power for i in range(5)}
    one, many = Ledger(tmp_path / "one"), Ledger(tmp_path / "many")
    meters = [Meter(rows, powers) for rows in (one, many)]
    ends = np.array([0.1, 0.7, 0.3])
    for i in range(11):
        tag, nodes = Tag("model", i, 1, 2), [f"client-{(i + k) % 5}" for k in range(3)]
        for who, end in zip(nodes, ends, strict=True):
            one.add(ledger.TRANSFER, who, float(i), i + end, tag, "edge-0", 10 + i, hop=ledger.CLIENT_SERVER)
        for who, end in zip(nodes, ends, strict=True):
            one.add(ledger.COMPUTE, who, float(i), i + end, tag, samples=i)
        one.add(ledger.EVALUATION, "cloud", float(i), float(i), Tag("evaluation", i))
        numbers = many.numbers(nodes)
        many.add_all(3, ledger.TRANSFER, numbers, float(i), i + ends, tag, "edge-0", 10 + i, hop=ledger.CLIENT_SERVER)
        many.add_all(3, ledger.COMPUTE, numbers, float(i), i + ends, tag, samples=np.full(3, i))
        many.add(ledger.EVALUATION, "cloud", float(i), float(i), Tag("evaluation", i))
        if i % 4 == 0:
            assert meters[0].totals() == meters[1].totals()
    assert meters[0].energy_j(20.0) == meters[1].energy_j(20.0) > 0
    assert meters[0].totals().cost_training_s == pytest.approx(11 * ends.sum(), rel=1e-12)
    for name, rows in (("a", one), ("b", many)):
        rows.write(tmp_path / name)
    assert read(tmp_path / "a").astype(str).equals(read(tmp_path / "b").astype(str))
    assert len(read(tmp_path / "a")) == 77


def test_an_empty_ledger_has_a_file_with_the_columns(tmp_path: Path) -> None:
    Ledger().write(tmp_path / "empty.parquet")
    assert list(read(tmp_path / "empty.parquet").columns) == list(ledger.Row._fields)


def test_metrics_are_sums_over_the_ledger_file(small: Callable[..., Loaded], tmp_path: Path) -> None:
    summary = execute(small("topology.devices={laptop: 0.5, jetson-nano: 0.5}"), tmp_path, Memo(None), max_workers=1)
    frame, final = read(tmp_path / "ledger.parquet"), summary["final"]
    frame["span_s"] = frame["end_s"] - frame["start_s"]
    assert frame["bytes"].sum() == final["bytes_total"]
    for hop in ledger.HOPS:
        assert frame.loc[frame["hop"] == hop, "bytes"].sum() == final[f"bytes_{hop.replace('-', '_')}"]
    assert frame.loc[frame["kind"] == ledger.COMPUTE, "span_s"].sum() == pytest.approx(
        final["cost_training_s"], rel=1e-12
    )
    group = frame.loc[frame["kind"] == ledger.GROUP_OPERATION, "span_s"].sum()
    assert group == pytest.approx(final["cost_group_s"], rel=1e-12)
    assert (frame["end_s"] >= frame["start_s"]).all()
    assert frame["end_s"].max() == pytest.approx(final["time_s"], rel=1e-12)


def test_energy_is_that_of_the_device_model() -> None:
    pi = find_profile("raspberry-pi-4b")
    rows = Ledger()
    meter = Meter(rows, {"client-0": pi.power})
    tag = Tag("model", 1)
    rows.add(ledger.TRANSFER, "edge-0", 0.0, 2.0, tag, "client-0", 10, hop=ledger.SERVER_CLIENT)
    rows.add(ledger.COMPUTE, "client-0", 2.0, 12.0, tag)
    rows.add(ledger.GROUP_OPERATION, "client-0", 12.0, 15.0, tag)
    rows.add(ledger.TRANSFER, "client-0", 15.0, 19.0, tag, "edge-0", 10, hop=ledger.CLIENT_SERVER)
    assert meter.energy_j(30.0) == pytest.approx(energy_j(pi, 13.0, 4.0, 2.0, 30.0), rel=1e-12)


def test_the_file_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from emulator.ledger import Ledger, Tag\n"
        "rows = Ledger()\n"
        "for i in range(500): rows.add('compute', f'client-{i * 7 % 83}', 0.0, 1.0, Tag(f'what-{i % 9}'), f'edge-{i % 11}')\n"
        "rows.write(Path(sys.argv[1])); print('pandas' in sys.modules)"
    )
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        assert done.stdout == "False\n"  # it is not worth its import
    assert len({(tmp_path / seed).read_bytes() for seed in ("1", "2", "3")}) == 1


def test_the_rows_that_are_kept_depend_on_the_fleet_and_not_on_how_long_a_run_is(tmp_path: Path) -> None:
    few, many = Ledger(tmp_path / "few"), Ledger(tmp_path / "many")
    numbers = many.numbers(f"client-{i}" for i in range(3 * Ledger.AT_ONCE))
    tag, kept = Tag("training", 1), {"few": 0, "many": 0}
    for _ in range(8):
        few.add_all(5000, ledger.COMPUTE, few.numbers([f"client-{i % 5}" for i in range(5000)]), 0.0, 1.0, tag)
        many.add_all(len(numbers), ledger.COMPUTE, numbers, 0.0, 1.0, tag)
        kept = {name: max(kept[name], len(rows.packed)) for name, rows in (("few", few), ("many", many))}
    assert kept["few"] <= Ledger.AT_ONCE
    assert len(numbers) <= kept["many"] <= 3 * len(numbers)
    few.write(tmp_path / "rows")
    assert len(read(tmp_path / "rows")) == 8 * 5000
