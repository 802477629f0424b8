"""Energy by state: held to hand-computed joules and to the meter, from a ledger of any size; and the command that shows it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scenario.command import Done, hfl, stated

from analysis.energy import MANY, as_csv, as_text, by_device, load_energy
from analysis.runs import load_run
from devices.compute import training_s
from devices.profile import Power
from emulator import ledger
from emulator.accounting import STATES, Meter, energy_by_state
from emulator.assembly import assemble
from emulator.errors import HflError, InputError
from emulator.files import write_json
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.ledger import Ledger, Tag, batches
from emulator.run import execute
from emulator.run_folder import FILES
from emulator.run_results import write_energy
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
TAG = Tag("test", 1)
ONE = Power.model_construct(idle=1.0, compute=11.0, send=3.0, receive=2.0)
TWO = Power.model_construct(idle=0.5, compute=20.5, send=8.5, receive=4.5)
COLUMNS = [*(f"{s}_s" for s in STATES), *(f"{s}_j" for s in STATES)]


def states(rows: Ledger, folder: Path, powers: list[Power], elapsed_s: float) -> dict[str, list[float]]:
    rows.write(folder / "ledger.parquet")
    found = batches(folder / "ledger.parquet", "kind", "who", "peer", "start_s", "end_s")
    columns = energy_by_state(found, [f"client-{c}" for c in range(len(powers))], powers, elapsed_s)
    assert list(columns) == COLUMNS
    return {name: values.tolist() for name, values in columns.items()}


def test_by_hand(tmp_path: Path) -> None:
    rows = Ledger()
    meter = Meter(rows, {"client-0": ONE, "client-1": TWO, "client-2": ONE})
    rows.add(ledger.TRANSFER, "edge-0", 0.0, 2.0, TAG, "client-0", 10, hop=ledger.SERVER_CLIENT)
    rows.add(ledger.COMPUTE, "client-0", 2.0, 12.0, TAG)
    rows.add(ledger.GROUP_OPERATION, "client-0", 12.0, 15.0, TAG)
    rows.add(ledger.TRANSFER, "client-0", 15.0, 19.0, TAG, "edge-0", 10, hop=ledger.CLIENT_SERVER)
    rows.add(ledger.TRANSFER, "client-0", 20.0, 21.0, TAG, "client-1", 10, hop=ledger.CLIENT_CLIENT)
    rows.add(ledger.TRANSFER, "edge-0", 19.0, 25.0, TAG, "cloud", 10, hop=ledger.EDGE_CLOUD)
    rows.add(ledger.EVALUATION, "cloud", 25.0, 25.0, TAG)
    found = states(rows, tmp_path, [ONE, TWO, ONE], 30.0)
    assert found == {
        "idle_s": [10.0, 29.0, 30.0],
        "compute_s": [13.0, 0.0, 0.0],
        "send_s": [5.0, 0.0, 0.0],
        "receive_s": [2.0, 1.0, 0.0],
        "idle_j": [30.0, 15.0, 30.0],
        "compute_j": [130.0, 0.0, 0.0],
        "send_j": [10.0, 0.0, 0.0],
        "receive_j": [2.0, 4.0, 0.0],
    }
    assert sum(sum(found[f"{s}_j"]) for s in STATES) == meter.energy_j(30.0) == 221.0


def test_states_that_overlap_add_up_as_the_meter_does_and_idle_is_what_is_left(tmp_path: Path) -> None:
    rows = Ledger()
    meter = Meter(rows, {"client-0": ONE})
    rows.add(ledger.TRANSFER, "client-0", 4.0, 6.0, TAG, "edge-0", 10, hop=ledger.CLIENT_SERVER)
    rows.add(
        ledger.TRANSFER, "client-0", 5.0, 7.0, TAG, "edge-1", 10, hop=ledger.CLIENT_SERVER
    )  # both at once: booked twice
    rows.add(ledger.TRANSFER, "edge-0", 9.0, 12.0, TAG, "client-0", 10, hop=ledger.SERVER_CLIENT)
    rows.add(ledger.COMPUTE, "client-0", 2.0, 10.0, TAG)
    found = states(rows, tmp_path, [ONE], 20.0)
    assert {name: values[0] for name, values in found.items()} == {
        "idle_s": 10.0, "compute_s": 8.0, "send_s": 4.0, "receive_s": 3.0,
        "idle_j": 20.0, "compute_j": 80.0, "send_j": 8.0, "receive_j": 3.0,
    }  # fmt: skip
    assert sum(found[f"{s}_j"][0] for s in STATES) == meter.energy_j(20.0)


def test_any_ledger_in_any_number_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    powers = [ONE, TWO, ONE, TWO, ONE]

    def fill(rows: Ledger) -> Ledger:
        for row in activities:
            rows.add(*row)
        return rows

    kinds = (ledger.COMPUTE, ledger.GROUP_OPERATION, ledger.TRANSFER)
    activities = []
    for _ in range(400):
        start = round(float(rng.uniform(0, 90)), 1)  # so that some begin where others end
        who, peer = (f"client-{c}" if c < 5 else "edge-0" for c in rng.integers(0, 7, 2))
        end = start + round(float(rng.exponential(0.3)), 1)
        activities.append((kinds[int(rng.integers(3))], who, start, end, TAG, peer, 1, 0, ledger.CLIENT_CLIENT))
    whole = states(fill(Ledger()), tmp_path, powers, 100.0)
    monkeypatch.setattr(Ledger, "CHUNK", 7)
    spilled = states(fill(Ledger(tmp_path / "spill")), tmp_path, powers, 100.0)
    for name in COLUMNS:
        assert spilled[name] == pytest.approx(whole[name], rel=1e-12), name
    meter = Meter(fill(Ledger()), {f"client-{c}": p for c, p in enumerate(powers)})
    assert sum(sum(whole[f"{s}_j"]) for s in STATES) == pytest.approx(meter.energy_j(100.0), rel=1e-12)
    for client in range(
        5
    ):  # idle time by brute force: in steps of the tenths of seconds to which everything is rounded
        busy = np.zeros(1000, bool)
        for kind, who, start, end, _, peer, *_ in activities:
            if f"client-{client}" in ((who, peer) if kind == ledger.TRANSFER else (who,)):
                busy[round(10 * start) : round(10 * end)] = True
        assert whole["idle_s"][client] == pytest.approx(100 - busy.sum() / 10, abs=1e-9)


def test_a_ledger_without_rows(tmp_path: Path) -> None:
    found = states(Ledger(), tmp_path, [ONE], 5.0)
    assert found == {name: [0.0] for name in COLUMNS} | {"idle_s": [5.0], "idle_j": [5.0]}


def test_a_hand_computed_scenario_gives_exactly_these_joules(small: Small, tmp_path: Path) -> None:
    loaded = small(
        "topology.devices={laptop: 0.5, raspberry-pi-4b: 0.5}", "method.group_rounds=1", "stop.rounds=1",
        "method.group_operation={kind: backdoor-detection, a: 1 s, b: 200 ms, c: 50 ms}",
    )  # fmt: skip
    lab = Lab(loaded.scenario, RunMemory(Memo(None), {}), lambda done, waiting: None, None, 1)
    session = assemble(loaded.scenario, lab)
    session.env.run(until=session.env.process(loaded.scenario.method(session)))
    fleet, facts, bits = session.world.fleet, lab.model_facts, 32 * lab.model_facts.parameters
    training = [
        training_s(d, facts.forward_flops, int(n), 4)
        for d, n in zip(fleet.client_devices, lab.clients.samples, strict=True)
    ]
    down, up, operation = 0.020 + bits / 16e6, 0.020 + bits / 8e6, 1 + 4 * 0.2 + 16 * 0.05
    elapsed = 0.005 + bits / 160e6 + down + max(training) + operation + up + 0.005 + bits / 80e6
    assert session.world.now == pytest.approx(elapsed, rel=1e-12)
    session.world.ledger.write(tmp_path / "ledger.parquet")
    write_energy(tmp_path / "energy.csv", tmp_path / "ledger.parquet", session.world)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "energy.csv").read_text())))
    assert [row["client"] for row in rows] == fleet.client_names
    total = 0.0
    for row, device, training_time in zip(rows, fleet.client_devices, training, strict=True):
        watts = {"laptop": (10, 60, 13, 12), "raspberry-pi-4b": (2.7, 6.4, 3.5, 3.3)}[row["device"]]
        idle, compute, send, receive = watts
        assert device.name == row["device"]
        expected = {
            "idle_s": elapsed - training_time - operation - up - down,
            "compute_s": training_time + operation, "send_s": up, "receive_s": down,
            "idle_j": idle * elapsed, "compute_j": (compute - idle) * (training_time + operation),
            "send_j": (send - idle) * up, "receive_j": (receive - idle) * down,
        }  # fmt: skip
        assert {name: float(row[name]) for name in expected} == pytest.approx(expected, rel=1e-12)
        total += sum(expected[f"{s}_j"] for s in STATES)
    assert session.metrics[-1]["energy_j"] == pytest.approx(total, rel=1e-12)


@pytest.fixture
def run(small: Small, tmp_path: Path) -> Path:
    execute(small("topology.devices={mix: phone-mix}"), tmp_path / "run", Memo(None), max_workers=1)
    return tmp_path / "run"


def test_the_file_adds_up_to_the_last_energy_of_the_metrics(run: Path) -> None:
    found = load_run(run)
    table = load_energy(found)
    final = found.metrics.iloc[-1]
    joules = table[[f"{s}_j" for s in STATES]].to_numpy()
    assert joules.sum() == pytest.approx(final["energy_j"], rel=1e-12)
    # Here nothing overlaps, and cost is training and group operations.
    assert table[[f"{s}_s" for s in STATES]].sum(axis=1).to_numpy() == pytest.approx(final["time_s"], rel=1e-12)
    assert table["compute_s"].sum() == pytest.approx(final["cost_s"], rel=1e-12)
    assert list(table["client"]) == [f"client-{c}" for c in range(8)]
    assert table["device"].str.startswith("phone ").all()
    assert "energy.csv" in FILES


def test_a_run_that_fails_has_its_energy_too(small: Small, tmp_path: Path) -> None:
    with pytest.raises(HflError, match="diverged"):
        execute(small("method.local={learning_rate: 1e20, epochs: 5}"), tmp_path, Memo(None), max_workers=1)
    table = load_energy(load_run(tmp_path))
    assert (table["compute_j"] > 0).all()


def test_names_with_commas_and_quotes_are_read_back(small: Small, tmp_path: Path) -> None:
    mix = tmp_path / "scores.json"
    mix.write_text('{"a, b": 1, "c \\"d\\"": 2}')
    execute(small(f"topology.devices={{mix: {mix}}}"), tmp_path / "run", Memo(None), max_workers=1)
    assert set(load_energy(load_run(tmp_path / "run"))["device"]) == {"a, b", 'c "d"'}


def test_the_table_by_device_adds_up(run: Path) -> None:
    table = by_device([load_run(run)])
    clients = load_energy(load_run(run))
    assert table["clients"].sum() == 8
    assert list(table["device"]) == sorted(set(clients["device"]))
    for column in COLUMNS:
        assert table[column].sum() == pytest.approx(clients[column].sum(), rel=1e-12)
    assert table["total_j"].sum() == pytest.approx(load_run(run).metrics["energy_j"].iloc[-1], rel=1e-12)
    parsed = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert [float(row["total_j"]) for row in parsed] == list(table["total_j"])


def test_many_kinds_are_put_together_in_texts(run: Path) -> None:
    rows = [f"client-{i},kind {i:02},1,2,3,4,{i},0,0,0" for i in range(MANY + 3)]
    write_json(run / "summary.json", stated(run))  # without the checksums
    header = (run / "energy.csv").read_text().partition("\n")[0]
    (run / "energy.csv").write_text("\n".join([header, *rows]) + "\n")
    text = as_text(by_device([load_run(run)]))
    shown = [line for line in text.split("\n") if line.startswith(("kind", "3 other kinds", "all"))]
    words = [" ".join(line.split()) for line in shown]
    assert words[0] == "kind 14 1 14 J 0 J 0 J 0 J 14 J"
    assert words[MANY] == "3 other kinds 3 3 J 0 J 0 J 0 J 3 J"  # 0 + 1 + 2
    assert words[MANY + 1] == "all 15 105 J 0 J 0 J 0 J 105 J"
    assert words[-1] == "all 15 1 s 2 s 3 s 4 s"


def test_the_command_shows_tables_or_csv(run: Path, small: Small, tmp_path: Path) -> None:
    execute(small("seed=9"), tmp_path / "other", Memo(None), max_workers=1)
    done = hfl("energy", run, tmp_path / "other")
    assert done.code == 0
    assert done.out == as_text(by_device([load_run(run), load_run(tmp_path / "other")]))
    assert "hierfavg (seed 9): mean time of a client" in done.out
    done = hfl("energy", "--csv", run)
    assert done == Done(0, as_csv(by_device([load_run(run)])), "")


def test_what_cannot_be_shown(run: Path, tmp_path: Path) -> None:
    assert hfl("energy", tmp_path / "nowhere") == Done(2, "", f"error: there is no folder '{tmp_path / 'nowhere'}'\n")
    file = run / "energy.csv"
    whole = file.read_text()
    file.write_text(whole + "\n")
    assert f"'{file}' changed after the run ended" in hfl("energy", run).err
    write_json(run / "summary.json", stated(run))  # without the checksums
    for text, said in (
        ("", "is damaged: it is empty"),
        (whole.replace("send_j", "sent_j"), "was written by another version: it has no column 'send_j'"),
        (
            whole + "client-9,x,a,0,0,0,0,0,0,0\n",
            f"is damaged: line {whole.count(chr(10)) + 1}: 'idle_s' is 'a'; it must be a number",
        ),
    ):
        file.write_text(text)
        done = hfl("energy", run)
        assert (done.code, done.out) == (2, "")
        assert done.err == f"error: '{file}' {said}\n"
    file.unlink()
    with pytest.raises(InputError, match=r"has no energy\.csv: it has not ended yet, or is of an older version"):
        load_energy(load_run(run))
    with pytest.raises(InputError, match="give at least one run"):
        by_device([])
