"""Certificates: their worlds are those of ``hfl whatif``, whoever replays them, and however often they are cut off."""

from __future__ import annotations

import csv
import io
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from certify_samples import gathered, run

from emulator.certify import certificate
from emulator.certify.certificate import Asked, Progress, Resources, Worlds, certify, commands_of
from emulator.certify.folder import CertificateFolder
from emulator.certify.gathering import Gathered, gather
from emulator.certify.measuring import Compared
from emulator.certify.order import row_of
from emulator.certify.quantities import as_options
from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.replay import open_source, replay, run_changed
from emulator.run import execute

ONE = Resources(jobs=1)
ASKED = Asked("small", 10, base=2, tipping=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    return [run(place, method) for method in ("group-fel", "hierfavg")]


@pytest.fixture(scope="module")
def small(folders: list[Path]) -> Gathered:
    return gathered(folders)


@pytest.fixture(scope="module")
def made(small: Gathered, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("certificate") / "one"
    certify(small, place, ASKED, ONE)
    return place


def only(quantity: str) -> str:
    """A section with one quantity, and no spreads of profiles."""
    return f"uncertain: {{profiles: false, quantities: {{{quantity}}}}}"


def read(place: Path) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    return (
        yaml.safe_load((place / "certificate.yaml").read_text()),
        pd.read_parquet(place / "worlds.parquet"),
        pd.read_parquet(place / "outcomes.parquet"),
    )


def test_the_folder_is_as_the_page_says(made: Path, small: Gathered) -> None:
    said, worlds, outcomes = read(made)
    names = [each["name"] for each in said["quantities"]]
    assert names[0] == "cost of a mask element"  # always the first
    assert names[1:5] == ["topology.links.access.up", "lines", "topology.links.backhaul.latency", "topology.devices"]
    assert set(names[5:]) == {"raspberry-pi-4b speed", "raspberry-pi-3b-plus speed", "laptop speed"}
    assert [each["name"] for each in said["without_effect"]] == ["raspberry-pi-4b efficiency.depthwise"]
    assert list(worlds.columns) == ["world", "part", *names]
    assert worlds["part"].tolist() == ["drawn"] * 10 + ["saltelli"] * 2 * (len(names) + 2)
    assert len(outcomes) == len(worlds) * 2
    assert outcomes["world"].tolist() == [world for world in worlds["world"] for _ in range(2)]
    assert outcomes["run"].tolist() == [each["run"] for each in said["runs"]] * len(worlds)
    assert set(outcomes["status"]) == {"replayed"}
    columns = [each["column"] for each in said["measures"]]
    assert list(outcomes.columns) == ["world", "run", "method", "seed", "status", "reason", *columns]
    assert not outcomes[columns].isna().any().any()
    assert said["counts"] == {
        "worlds": len(worlds), "outcomes": len(outcomes), "replayed": len(outcomes), "order differs": 0, "trained": 0,
        "failed": 0, "kept_worlds": len(worlds),
    }  # fmt: skip
    baseline = pd.read_parquet(made / "baseline.parquet")
    assert list(baseline.columns) == list(outcomes.columns)
    assert set(baseline["world"]) == {-1}
    curves = pd.read_parquet(made / "curves.parquet")
    assert set(curves["world"]) == set(range(10))
    assert all((made.resolve() / each["folder"] / "summary.json").is_file() for each in said["runs"])


def test_where_it_tips_is_where_replays_say_so(folders: list[Path], tmp_path: Path) -> None:
    """On either side of each tipping point another method wins."""
    found = gathered(folders, only("topology.links.access.up: {kind: log-uniform, low: 50 kbit/s, high: 8 Mbit/s}"))
    said = certify(found, tmp_path / "a", Asked("a", 2, base=0, budgets={"time": 2.0}), ONE)
    with (tmp_path / "a" / "tipping.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    masks, bandwidth = (each["middle"] for each in said["quantities"])
    assert {row["quantity"] for row in rows} == {each["name"] for each in said["quantities"]}
    better = {each["column"]: each["better"] for each in said["measures"]}
    tips = [row for row in rows if row["side"] == "below"]
    assert tips
    for row in tips:
        for factor, winner in ((1 - 1e-3, row["better"]), (1 + 1e-3, row["than"])):
            at = float(row["at"]) * factor
            masked = row["quantity"] == "cost of a mask element"
            values = {}
            for run_of, worlds in zip(found.runs, found.worlds_of_runs(), strict=True):
                options = as_options(worlds.changes([at, bandwidth] if masked else [masks, at]))
                metrics = replay(source := open_source(run_of.folder), source.what_if(options), Memo(None)).metrics
                each = next(m for m in said["measures"] if m["column"] == row["measure"])
                goal = each.get("target", each.get("budget"))
                values[run_of.method] = Compared(each["kind"], each["axis"], goal, found.measure).of(metrics)
            best = (min if better[row["measure"]] == "lower" else max)(values, key=lambda name: values[name])
            assert best == winner, (row, values)


def test_the_worlds_move_what_they_say(made: Path, small: Gathered) -> None:
    """Time goes down with bandwidth, and the devices, the cost of masks and the factors reach the scenarios."""
    _, worlds, _ = read(made)
    asked = ASKED
    for world in (0, 3):
        row = worlds.loc[world]
        for (_, options), run_of, own in zip(
            commands_of(small, asked, world), small.runs, small.scenarios, strict=True
        ):
            scenario = open_source(run_of.folder).what_if(options).loaded.scenario
            access, devices = scenario.topology.links.access, scenario.topology.devices
            assert access.up == row["topology.links.access.up"]
            assert access.down == pytest.approx(own.topology.links.access.down * row["lines"], rel=1e-15)
            assert scenario.topology.links.backhaul.latency == row["topology.links.backhaul.latency"]
            assert (devices == {"raspberry-pi-4b": 1.0}) == (row["topology.devices"] == "raspberry-pi-4b")
            assert scenario.topology.profiles["laptop"].speed == row["laptop speed"]
            operation = scenario.method.params.group_operation
            if run_of.method == "group-fel":
                assert operation.params.mask_element == row["cost of a mask element"]
            else:
                assert operation.kind == "none"


def check_worlds(small: Gathered, made: Path, asked: Asked, worlds: list[int], tmp_path: Path) -> None:
    said, _, outcomes = read(made)
    measures = [
        Compared(each["kind"], each["axis"], each.get("target", each.get("budget")), small.measure)
        for each in said["measures"]
    ]
    assert [each.column for each in measures] == [each["column"] for each in said["measures"]]
    for world in worlds:
        for number, (folder, options) in enumerate(commands_of(small, asked, world)):
            changed = open_source(folder).what_if(options)
            again, afresh = tmp_path / "again", tmp_path / "afresh"
            run_changed(changed, again, Memo(None), max_workers=1)
            computed = execute(changed.loaded, afresh, Memo(None), max_workers=1)["trainings"]["computed"]
            assert computed > 0
            found = (afresh / "metrics.csv").read_bytes()
            assert found == (again / "metrics.csv").read_bytes()
            rows = csv.DictReader(io.StringIO(found.decode()))
            metrics = [{name: float(cell) for name, cell in row.items()} for row in rows]
            expected = row_of(world, small.runs[number], "replayed", "", metrics, measures)  # type: ignore[arg-type]
            (row,) = outcomes[(outcomes["world"] == world) & (outcomes["run"] == small.runs[number].name)].to_dict(
                "records"
            )
            assert row == expected
            shutil.rmtree(again)
            shutil.rmtree(afresh)


def test_worlds_are_those_of_whatif_and_of_runs_from_the_beginning(small: Gathered, made: Path, tmp_path: Path) -> None:
    check_worlds(small, made, ASKED, [0, 1, 9, 12], tmp_path)


@pytest.mark.slow
def test_fifty_worlds_of_the_quickstart_are_the_same_bytes_by_whatif_and_from_the_beginning(tmp_path: Path) -> None:
    from emulator.certify.gathering import Stated
    from emulator.study.load import load
    from emulator.study.runner import run_all

    study = load("studies/quickstart-certificate")
    runs = [each for each in study.runs if each.seed == 1]
    assert not run_all(runs, tmp_path / "runs", None)
    assert study.study.uncertain is not None
    found = gather([tmp_path / "runs" / each.name for each in runs], Stated(study.study.uncertain, study.document))
    asked = Asked("quickstart", 50, base=0, tipping=False)
    certify(found, tmp_path / "certificate", asked)
    check_worlds(found, tmp_path / "certificate", asked, list(range(50)), tmp_path)


class Cut(Exception):  # noqa: N818
    """Somebody pulled the plug."""


def test_a_certificate_that_is_cut_off_ends_as_if_nobody_had(
    small: Gathered, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = tmp_path / "cut", ASKED
    written = CertificateFolder.write_part

    def then_cut(self: CertificateFolder, number: int, *rest: Any) -> None:
        written(self, number, *rest)
        raise Cut

    monkeypatch.setattr(CertificateFolder, "write_part", then_cut)
    for _ in range(2):
        with pytest.raises(Cut):
            certify(small, place, asked, ONE)
    monkeypatch.setattr(CertificateFolder, "write_part", written)
    left = 4 - len(list((place / "parts").glob("outcomes-*")))
    assert 0 < left < 4
    steps: list[int] = []
    certify(small, place, asked, ONE, Progress(lambda what, done, _: steps.append(done) if what == "worlds" else None))
    assert steps[0] > 0  # what was there was not done again
    for name in ("outcomes", "worlds", "baseline", "curves"):
        assert (place / f"{name}.parquet").read_bytes() == (made / f"{name}.parquet").read_bytes(), name


def test_another_certificate_in_the_same_folder_is_refused(small: Gathered, made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a certificate of something else"):
        certify(small, made, Asked("small", 11, base=2), ONE)
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no certificate"):
        certify(small, tmp_path, Asked("small", 11, base=2), ONE)


def test_several_processes_give_the_same_bytes(small: Gathered, made: Path, tmp_path: Path) -> None:
    certify(small, tmp_path / "two", ASKED, Resources(jobs=2))
    for name in ("outcomes.parquet", "curves.parquet", "worlds.parquet"):
        assert (tmp_path / "two" / name).read_bytes() == (made / name).read_bytes()


def test_a_negative_draw_is_a_failed_world_with_its_reason(folders: list[Path], tmp_path: Path) -> None:
    text = only("topology.links.access.up: {kind: normal, mean: 1 Mbit/s, sd: 2 Mbit/s}")
    found = gathered(folders[:1], text)
    said = certify(found, tmp_path / "a", Asked("a", 16, base=0, tipping=False), ONE)
    _, worlds, outcomes = read(tmp_path / "a")
    negative = worlds["topology.links.access.up"] <= 0
    assert negative.sum() == said["counts"]["failed"] > 2
    assert (outcomes["status"] == "failed").tolist() == negative.tolist()
    reasons = outcomes["reason"][outcomes["status"] == "failed"]
    assert reasons.str.contains("a bandwidth here must be greater than zero").all()
    assert outcomes[outcomes["status"] == "failed"].iloc[:, 6:].isna().all().all()
    cut = text.replace("sd: 2 Mbit/s", "sd: 2 Mbit/s, least: 100 kbit/s")
    assert (
        certify(gathered(folders[:1], cut), tmp_path / "b", Asked("b", 16, base=0, tipping=False), ONE)["counts"][
            "failed"
        ]
        == 0
    )


def test_what_is_never_reached_counts(folders: list[Path], tmp_path: Path) -> None:
    asked = Asked("a", 2, base=0, targets=(1.0,), budgets={"time": 1e-6}, tipping=False)
    certify(gathered(folders), tmp_path / "a", asked, ONE)
    _, _, outcomes = read(tmp_path / "a")
    assert (outcomes["time_to_1_s"] == math.inf).all()
    assert (outcomes["accuracy_at_time_1e-06"] == -math.inf).all()


def asynchronous(folder: Path) -> Gathered:
    """Half of the worlds are as it was trained, but for its links; in the other half other clients are the slow ones."""
    mixed = "{laptop: 0.5, raspberry-pi-3b-plus: 0.5}"
    place = run(folder, "fedasync", 1, ("clients: 8", f"clients: 8\n  devices: {mixed}"))
    choice = f"{{kind: choice, of: [{mixed}, {{laptop: 0.25, raspberry-pi-3b-plus: 0.75}}]}}"
    return gathered([place], only(f"topology.devices: {choice}"))


def test_worlds_of_another_order_are_counted_and_trained_on_request(tmp_path: Path) -> None:
    found = asynchronous(tmp_path)
    asked = Asked("a", 6, base=0, tipping=False)
    before = certify(found, tmp_path / "a", asked, ONE)["counts"]
    assert before["order differs"] > 0
    assert before["replayed"] + before["order differs"] == 6
    _, _, outcomes = read(tmp_path / "a")
    differs = outcomes[outcomes["status"] == "order differs"]
    assert differs["reason"].str.startswith("what is learned differs from").all()
    assert differs[outcomes.columns[6:]].isna().all().all()
    after = certify(found, tmp_path / "a", asked, Resources(1, train_s=100))["counts"]
    assert after["trained"] == before["order differs"]
    assert after["order differs"] == 0
    _, _, trained = read(tmp_path / "a")
    kept = outcomes["status"] == "replayed"
    assert trained[kept].equals(outcomes[kept])  # nothing else has changed
    world = int(differs["world"].iloc[0])
    check_worlds(found, tmp_path / "a", asked, [int(outcomes[kept]["world"].iloc[0])] if kept.any() else [], tmp_path)
    ((folder, options),) = commands_of(found, asked, world)
    changed = open_source(folder).what_if(options)
    execute(changed.loaded, tmp_path / "afresh", Memo(None), max_workers=1)
    (place,) = (tmp_path / "a" / "trained").glob(f"world-{world}_*")
    assert (place / "metrics.csv").read_bytes() == (tmp_path / "afresh" / "metrics.csv").read_bytes()


def test_training_ends_with_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = asynchronous(tmp_path), Asked("a", 6, base=0, tipping=False)
    counts = certify(found, tmp_path / "a", asked, Resources(1, train_s=1e-3))["counts"]
    assert counts["trained"] == 0
    assert counts["order differs"] > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("clients: 8", "clients: 9"), "topology.clients is 8 and 9"),
        (("alpha: 0.3", "alpha: 0.4"), "data.partition.alpha is 0.3 and 0.4"),
        (("up: 8 Mbit/s", "up: 9 Mbit/s"), "topology.links.access.up is 8 Mbit/s and 9 Mbit/s"),
    ],
)
def test_runs_of_different_scenarios_are_refused_by_the_key(
    folders: list[Path], tmp_path: Path, changes: tuple[str, str], why: str
) -> None:
    other = run(tmp_path, "hierfavg", 1, changes)
    with pytest.raises(InputError, match="are of different scenarios") as error:
        gathered([folders[0], other])
    assert why in str(error.value)


def test_the_same_method_and_seed_twice_is_refused(folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], tmp_path / "copy")
    with pytest.raises(InputError, match="are both group-fel with seed 1"):
        gathered([folders[0], tmp_path / "copy"])


@pytest.mark.parametrize(
    ("quantity", "why"),
    [
        (
            "topology.links.access.upp: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}",
            "unknown key; did you mean 'up'?",
        ),
        (
            "topology.links.access.up: {kind: uniform, low: 1 ms, high: 2 ms}",
            "'ms' is a unit of time, not of bandwidth",
        ),
        ("topology.links.cell: {factor: {kind: uniform, low: 1, high: 2}}", "there is nothing to multiply"),
        ("topology.devices: {kind: choice, of: [laptop, toaster]}", "unknown device 'toaster'"),
    ],
)
def test_quantities_without_a_place_are_refused_with_theirs(folders: list[Path], quantity: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        gathered(folders[:1], f"uncertain:\n  quantities:\n    {quantity}\n")
    assert why in str(error.value)
    assert str(error.value).startswith("uncertain.yaml:3:5: ")


def test_without_a_section_the_spreads_of_profiles_are_drawn(folders: list[Path]) -> None:
    found = gather(folders, None)
    assert [q.name for q in found.quantities] == ["cost of a mask element", "raspberry-pi-4b speed"]
    without = gather(folders[1:], None)  # hierfavg alone: in the clear
    assert [q.name for q in without.quantities] == ["raspberry-pi-4b speed"]
    quantity, why = without.without_effect[0]
    assert (quantity.name, why) == ("cost of a mask element", "no run has secure aggregation")


def test_who_states_the_cost_of_masks_has_the_last_word(folders: list[Path], tmp_path: Path) -> None:
    text = "uncertain: {quantities: {method.group_operation.mask_element: {kind: uniform, low: 1 ns, high: 2 ns}}}"
    found = gathered(folders[:1], text)
    assert [q.name for q in found.quantities] == ["method.group_operation.mask_element", "raspberry-pi-4b speed"]
    given = run(
        tmp_path, "{preset: group-fel, formation: {min_size: 2, max_cov: 1}, sampling: all, group_operation: "
        "{kind: secure-aggregation, a: 1 s, b: 1 s, c: 1 s}, local: {epochs: 1, batch_size: 4, learning_rate: 0.1}}"
    )  # fmt: skip
    ((masks, why), *_) = gather([given], None).without_effect
    assert (masks.name, why) == ("cost of a mask element", "the scenario says itself what secure aggregation takes")


def test_shares_of_devices_and_whole_fleets(tmp_path: Path) -> None:
    place = run(
        tmp_path,
        "hierfavg",
        1,
        ("clients: 8", "clients: 8\n  devices: {laptop: 0.5, raspberry-pi-4b: 0.25, jetson-nano: 0.25}"),
    )
    text = """
uncertain:
  profiles: false
  quantities:
    topology.devices.laptop: {kind: uniform, low: 0.2, high: 0.8}
    topology.links: {factor: {kind: log-normal, median: 1, spread: 2}}
"""
    found = gathered([place], text)
    (worlds,) = found.worlds_of_runs()
    made = dict(worlds.changes([0.6, 3.0]))
    assert made["topology.devices"] == pytest.approx({"laptop": 0.6, "raspberry-pi-4b": 0.2, "jetson-nano": 0.2})
    assert made["topology.links.access.up"] == "24 Mbit/s"
    assert made["topology.links.backhaul.down"] == "3 Gbit/s"
    fast = gathered([place], only("topology.devices: {factor: {kind: uniform, low: 1, high: 3}}"))
    ((_, factors),) = fast.worlds_of_runs()[0].changes([2.0])
    assert factors == {name: {"speed": 2.0} for name in ("laptop", "raspberry-pi-4b", "jetson-nano")}


def test_a_device_may_have_two_factors(folders: list[Path]) -> None:
    found = gathered(
        folders[1:], "uncertain: {quantities: {topology.devices: {factor: {kind: uniform, low: 1, high: 3}}}}"
    )
    assert [q.name for q in found.quantities] == ["topology.devices", "raspberry-pi-4b speed"]
    ((key, factors),) = found.worlds_of_runs()[0].changes([2.0, 1.5])
    assert (key, factors) == ("topology.profiles", {"raspberry-pi-4b": {"speed": 3.0}})


def test_a_part_of_the_worlds_is_all_that_is_held(small: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = Worlds(small, Asked("a", 100, base=0))
    sizes = [len(worlds.part(number)) for number in range(worlds.parts)]
    assert sizes == [certificate.A_PART] * 12 + [4]
    assert not any(isinstance(changes, str) for world in worlds.part(0) for changes in world.changes)


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings within a test take one process."""
    monkeypatch.setattr("emulator.certify.training.cores", lambda: 1)
