"""Price lists: what rows cost in closed form, runs with a list and runs priced afterwards, and lists that make no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario.command import TINY, hfl
from study.study_samples import write_study

from analysis import tables
from analysis.plots import cost_accuracy, pareto
from analysis.quantities import carbon_text, currency_of, money_text
from analysis.runs import load_run
from analysis.whatif import side_by_side
from analysis.worlds import load_worlds
from devices.profile import Power
from emulator import ledger, yamlfile
from emulator.accounting import Meter
from emulator.errors import InputError, ScenarioError
from emulator.files import read_json
from emulator.learning.memo import Memo
from emulator.ledger import Ledger, Tag
from emulator.pricing import price
from emulator.replay import open_source, replay
from emulator.run import execute
from emulator.scenario import Loaded, dump, loads
from emulator.scenario.load import check, override
from emulator.scenario.prices import Prices, bundled_lists, read_list
from traces.step import StepFunction

Small = Callable[..., Loaded]

LIST = """
currency: EUR
traffic: {client-server: 2 EUR/GB, cloud-edge: 500 EUR/TB}
devices: 3.6 EUR/h
servers: {cloud: 36 EUR/h, edge: 7.2 EUR/h}
energy: 0.36 EUR/kWh
"""
TAG = Tag("training", 1)


def trace_file(folder: Path, end: str = "", step_s: float = 2) -> Path:
    path = folder / "carbon.csv"
    path.write_text(f"{end}time [s],carbon [g/kWh]\n0,100\n{step_s},300\n")
    return path


def meter(prices: str) -> tuple[Ledger, Meter]:
    """Two clients that draw 2 W when idle, a cloud and three edges."""
    rows, power = Ledger(), Power.model_validate({"idle": "2 W", "compute": "5 W", "send": "4 W", "receive": "3 W"})
    given = Prices.model_validate(yamlfile.parse(prices, "list").data)
    powers = {"client-0": power, "client-1": power}
    return rows, Meter(rows, powers, (), given, {"cloud": 1, "edge": 3})


def fill(rows: Ledger) -> None:
    rows.add(ledger.COMPUTE, "client-0", 1.0, 3.0, TAG)
    rows.add(ledger.GROUP_OPERATION, "client-1", 0.0, 0.5, TAG)
    rows.add(ledger.TRANSFER, "client-0", 3.0, 4.0, TAG, "edge-0", 10**9, hop=ledger.CLIENT_SERVER)
    rows.add(ledger.TRANSFER, "cloud", 0.0, 1.0, TAG, "edge-0", 4 * 10**9, hop=ledger.CLOUD_EDGE)
    rows.add(ledger.TRANSFER, "edge-0", 4.0, 6.0, TAG, "client-1", 7 * 10**9, hop=ledger.SERVER_CLIENT)


def test_money_is_what_one_works_out_by_hand() -> None:
    rows, priced = meter(LIST)
    fill(rows)
    energy_j = 2 * 2 * 10 + 2 * 3 + 0.5 * 3 + 1 * 2 + 2 * 1  # idle; above it computing, sending, receiving
    parts = 1 * 2 + 4 * 0.5, 2.5 * 0.001, 10 * (0.01 + 3 * 0.002), energy_j * 1e-7
    assert priced.bill(10.0) == {"money": pytest.approx(sum(parts), rel=1e-12)}


def test_carbon_over_time_is_power_times_intensity(tmp_path: Path) -> None:
    at_once = f"carbon_trace: {{file: {trace_file(tmp_path)}, end: hold}}"
    rows, priced = meter(at_once)
    fill(rows)
    by_hand = 4 * (2 * 100 + 8 * 300)  # both idle for 10 s
    by_hand += 3 * (1 * 100 + 1 * 300) + 3 * 0.5 * 100 + 2 * 1 * 300 + 1 * 2 * 300
    assert priced.bill(10.0)["carbon_g"] == pytest.approx(by_hand / 3.6e6, rel=1e-12)
    later, shifted = meter(at_once.replace("end: hold", "end: repeat, start: 2 s"))  # 300 for 2 s, then 100 for 2 s
    fill(later)
    by_hand = 4 * (300 * 6 + 100 * 4) + 3 * (300 + 100) + 3 * 0.5 * 300 + 2 * 100 + 1 * 2 * 300
    assert shifted.bill(10.0)["carbon_g"] == pytest.approx(by_hand / 3.6e6, rel=1e-12)


def test_a_constant_is_a_trace_that_never_changes(tmp_path: Path) -> None:
    (tmp_path / "flat.csv").write_text("# end: hold\ntime [h],carbon [kg/kWh]\n0,0.25\n")
    bills = []
    for text in (f"carbon_trace: {{file: {tmp_path / 'flat.csv'}}}", "carbon: 250 g/kWh"):
        rows, priced = meter(text)
        fill(rows)
        bills.append(priced.bill(7.0)["carbon_g"])
    assert bills[0] == pytest.approx(bills[1], rel=1e-12)


@given(
    st.lists(st.floats(0, 1e3), min_size=1, max_size=6),
    st.lists(st.floats(0.01, 50), min_size=6, max_size=6),
    st.booleans(),
    st.floats(0, 90),
    st.lists(st.floats(0, 1e4), min_size=1, max_size=8),
)
def test_sums_are_integrals(
    values: list[float], widths: list[float], repeats: bool, shift: float, at: list[float]
) -> None:
    edges = np.concatenate([[0.0], np.cumsum(widths)])
    period = float(edges[len(values)]) if repeats else None
    function = StepFunction.of(edges[: len(values)], values, period).shifted(shift).scaled(0.5)
    one_by_one = [function.integrate(0.0, t) for t in at]
    assert function.sums(np.array(at)) == pytest.approx(one_by_one, rel=1e-9, abs=1e-9)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same run without prices, with a list in its scenario, and in a world that is twice as fast."""
    folder = tmp_path_factory.mktemp("priced")
    (folder / "list.yaml").write_text(f"{LIST}carbon_trace: {{file: {trace_file(folder, step_s=0.5)}, end: repeat}}\n")
    worlds = {"plain": [], "priced": [f"prices={folder / 'list.yaml'}"]}
    worlds["fast"] = [*worlds["priced"], "topology.links.access.up=40 Mbit/s"]
    found = {"list": folder / "list.yaml"}
    for name, changes in worlds.items():
        document = yamlfile.parse(TINY, "tiny.yaml")
        for change in changes:
            override(document, change)
        found[name] = folder / name
        execute(check(document), folder / name, Memo(None), max_workers=1)
    return found


def test_prices_change_nothing_but_add_columns(runs: dict[str, Path]) -> None:
    plain, priced = (pd.read_csv(runs[name] / "metrics.csv", dtype=str) for name in ("plain", "priced"))
    assert set(priced) - set(plain) == {"money", "carbon_g"}
    assert plain.equals(priced[list(plain)])
    assert "prices" not in (runs["plain"] / "scenario.yaml").read_text()
    for name in ("ledger.parquet", "energy.csv", "groups.csv"):
        one, other = (runs[which] / name for which in ("plain", "priced"))
        assert one.exists() == other.exists()
        assert not one.exists() or one.read_bytes() == other.read_bytes()
    last = load_run(runs["priced"]).metrics.iloc[-1]
    edges = len(load_run(runs["priced"]).ledger.query("who.str.startswith('edge')")["who"].unique())
    by_hand = last["bytes_client_server"] * 2e-9 + last["bytes_cloud_edge"] * 5e-10 + last["cost_s"] * 1e-3
    by_hand += last["time_s"] * (0.01 + edges * 0.002) + last["energy_j"] * 1e-7
    assert last["money"] == pytest.approx(by_hand, rel=1e-12)
    assert last["energy_j"] * 100 / 3.6e6 < last["carbon_g"] < last["energy_j"] * 300 / 3.6e6


def test_a_run_that_is_priced_afterwards_has_the_same_figures(runs: dict[str, Path]) -> None:
    price(runs["plain"], read_list(str(runs["list"])))
    afterwards, written = load_run(runs["plain"]), load_run(runs["priced"])
    assert list(afterwards.metrics["money"]) == list(written.metrics["money"])
    assert list(afterwards.metrics["carbon_g"]) == list(written.metrics["carbon_g"])
    assert currency_of([afterwards.metrics, written.metrics]) == "EUR"
    reach = tables.first_reach(written.metrics, 0.0)
    assert reach is not None
    assert reach["money"] == written.metrics["money"].iloc[0]


def test_what_ifs_have_money_too(runs: dict[str, Path]) -> None:
    price(runs["plain"], read_list(str(runs["list"])))
    fast = load_run(runs["fast"]).metrics
    for name in ("plain", "priced"):
        source = open_source(runs[name])
        played = replay(source, source.what_if(["topology.links.access.up=40 Mbit/s"]), Memo(None))
        assert [row["money"] for row in played.metrics] == list(fast["money"])
        assert [row["carbon_g"] for row in played.metrics] == list(fast["carbon_g"])
    dearer = source.what_if(["prices.energy=36 EUR/kWh"])
    more = replay(source, dearer, Memo(None)).metrics[-1]
    before = load_run(runs["priced"]).metrics.iloc[-1]
    assert more["money"] - before["money"] == pytest.approx(before["energy_j"] * (1e-5 - 1e-7), rel=1e-6)
    table = side_by_side(load_run(runs["priced"]), load_run(runs["fast"]))
    assert (table["money_after"] <= table["money_before"]).all()


def test_runs_are_compared_in_money_and_carbon(runs: dict[str, Path], tmp_path: Path) -> None:
    both = [load_run(runs[name]) for name in ("priced", "fast")]
    table = tables.compare(both)
    assert {"money_to_target", "carbon_to_target_g", "accuracy_at_money", "budget_carbon_g"} <= set(table)
    text = tables.as_text(table)
    assert money_text(table["money_to_target"].iloc[0], "EUR") in text
    assert carbon_text(table["carbon_to_target_g"].iloc[0]) in text
    assert "EUR" in tables.charges_as_text(tables.charges(both))
    figure = cost_accuracy.plot(both, axes=("money", "carbon"), path=tmp_path / "a.png")
    assert figure.axes[0].get_xlabel() == "Money (EUR)"
    pareto.plot(both, axes=("money",), path=tmp_path / "b.png")
    said = hfl("compare", runs["priced"], runs["fast"], "--by", "money,carbon", "--out", tmp_path / "c")
    assert said.code == 0, said.err


def test_money_of_two_currencies_is_not_compared(runs: dict[str, Path]) -> None:
    other = yamlfile.parse(LIST.replace("EUR", "USD"), "usd")
    price(runs["plain"], other)
    both = [load_run(runs[name]) for name in ("plain", "priced")]
    with pytest.raises(InputError, match="'EUR', 'USD'"):
        tables.compare(both)
    with pytest.raises(InputError, match="'EUR', 'USD'"):
        cost_accuracy.plot(both, axes=("money",))


def test_runs_without_prices_have_no_such_axis(small: Small, tmp_path: Path) -> None:
    execute(small(), tmp_path / "run", Memo(None), max_workers=1)
    run = load_run(tmp_path / "run")
    assert not {"money_to_target", "currency"} & set(tables.compare([run]))
    with pytest.raises(InputError, match="no price list"):
        cost_accuracy.plot([run], axes=("money",))


def test_figures_of_another_run_are_refused(runs: dict[str, Path]) -> None:
    price(runs["plain"], read_list(str(runs["list"])))
    kept = (runs["plain"] / "prices.json").read_bytes()
    (runs["fast"] / "prices.json").write_bytes(kept)
    try:
        with pytest.raises(InputError, match="another run"):
            load_run(runs["fast"])
        price(runs["fast"], read_list(str(runs["list"])))  # mends it
        assert load_run(runs["fast"]).metrics["money"].notna().all()
    finally:
        (runs["fast"] / "prices.json").unlink()
    (runs["plain"] / "prices.json").write_bytes(kept.replace(b"EUR", b"USD"))
    with pytest.raises(InputError, match="damaged"):
        load_run(runs["plain"])
    price(runs["plain"], read_list(str(runs["list"])))


def test_the_command_prices_every_run_in_a_folder(runs: dict[str, Path], tmp_path: Path) -> None:
    said = hfl("prices", runs["plain"], "--list", "us-2024", "--csv", tmp_path / "t.csv")
    assert said.code == 0, said.err
    assert "USD" in said.out
    table = pd.read_csv(tmp_path / "t.csv")
    stored = read_json(runs["plain"] / "prices.json")
    assert stored is not None
    assert table["money"].iloc[0] == stored["columns"]["money"][-1]


def test_a_study_has_money_to_a_target_in_its_worlds(tmp_path: Path) -> None:
    text = """
name: priced
scenario: tiny.yaml
set: {stop.rounds: 3, prices: {currency: EUR, devices: 1 EUR/h, carbon: 100 g/kWh}}
target: 0.15
budget: {money: 1000}
whatif: {worlds: {slow: {topology.links.access.up: 1 Mbit/s}}, targets: [0.15]}
grid: {topology.links.access.down: [4 Mbit/s, 8 Mbit/s]}
figures: [{kind: grid-table, value: money-to-target}, {kind: to-target, targets: [0.15], value: money}]
"""
    path = write_study(tmp_path, text)
    said = hfl("study", path, "--out", tmp_path / "out", "--jobs", "1", "--no-memo")
    assert said.code == 0, said.err
    world, _ = load_worlds(tmp_path / "out").table.to_dict("records")
    cost_s, energy_j = world["cost_s"], world["energy_j"]
    assert world["money"] == pytest.approx(cost_s / 3600)
    assert world["carbon_g"] == pytest.approx(energy_j * 100 / 3.6e6)
    assert world["money_to_0.15"] == pytest.approx(world["cost_to_0.15_s"] / 3600)
    assert 0 < world["carbon_to_0.15_g"] <= world["carbon_g"]
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert {"money_mean", "money_to_target_mean", "carbon_to_target_g_mean", "accuracy_at_budget_mean"} <= set(summary)


def test_scenarios_read_back_what_they_say(small: Small) -> None:
    for name in bundled_lists():
        loaded = small(f"prices={name}")
        text = dump(loaded.scenario)
        assert dump(loads(text, "again").scenario) == text
        assert loaded.scenario.prices is not None
        assert loaded.scenario.prices.priced


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("currency: EUR\ntraffic: {client-server: -1 EUR/GB}", "2:26", "must not be negative"),
        ("currency: EUR\ntraffic: {client-sever: 1 EUR/GB}", "2:25", "did you mean 'client-server'"),
        ("currency: EUR\ntraffic: {client-server: 1}", "2:26", "1 has no unit"),
        ("currency: EUR\nenergy: 1 EUR", "2:9", "has no unit"),
        ("currency: EUR\nenergy: 1 EUR/GB", "2:9", "no unit of energy"),
        ("currency: EUR\nenergy: 1 USD/kWh", "2:9", "the currency of the list is EUR"),
        ("energy: 1 USD/kWh", "1:1", "no currency"),
        ("currency: EUR", "1:1", "has no price"),
        ("currency: EUR\nservers: {fog: 1 EUR/h}", "2:16", "no tier of servers 'fog'"),
        ("currency: EUR\nserver: {cloud: 1 EUR/h}", "2:1", "did you mean 'servers'"),
        ("currency: euro\nenergy: 1 EUR/kWh", "1:11", "may hold only"),
        ("carbon: 3 EUR/kWh", "1:9", "no mass"),
        ("carbon: nan g/kWh", "1:9", "must be finite"),
        ("carbon: 1 g/kWh\ncarbon_trace: {file: daily-load}", "2:15", "give either"),
        ("carbon_trace: {file: daily-load}", "1:22", "the trace has no carbon"),
        ("carbon_trace: {file: nowhere.csv}", "1:22", "no such file"),
        ("", "", "is empty"),
        ("[1]", "1:1", "is not a mapping"),
    ],
)
def test_lists_that_make_no_sense_are_refused_with_their_place(
    small: Small, tmp_path: Path, text: str, where: str, what: str
) -> None:
    path = tmp_path / "list.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        small(f"prices={path}")
    assert f"{path}:{where}" in str(error.value)
    assert what in str(error.value)


def test_a_carbon_trace_that_ends_before_the_run_is_refused(small: Small, tmp_path: Path) -> None:
    trace = trace_file(tmp_path)
    given = f"prices={{carbon_trace: {{file: {trace}}}}}"
    with pytest.raises(ScenarioError, match="ends 2 s after the beginning"):
        small(given, "stop.time=1 h")
    trace.write_text(trace.read_text().replace("2,300", "0.001,300"))
    with pytest.raises(ScenarioError, match="ends 1 ms after the beginning"):
        execute(small(given), tmp_path / "run", Memo(None), max_workers=1)
    execute(small(given.replace("csv}", "csv, end: hold}")), tmp_path / "held", Memo(None), max_workers=1)
    assert not math.isnan(load_run(tmp_path / "held").metrics["carbon_g"].iloc[-1])


def test_a_changed_carbon_trace_is_noticed(small: Small, tmp_path: Path) -> None:
    trace = trace_file(tmp_path, "# end: hold\n")
    execute(small(f"prices={{carbon_trace: {{file: {trace}}}}}"), tmp_path / "run", Memo(None), max_workers=1)
    open_source(tmp_path / "run")
    trace.write_text(trace.read_text().replace("300", "400"))
    with pytest.raises(InputError, match=r"carbon\.csv"):
        open_source(tmp_path / "run")
