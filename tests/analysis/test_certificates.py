"""What is said and drawn of certificates: verdicts, tables, pictures, the page, the commands."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from certificate_samples import (
    AFTER,
    BANDWIDTH,
    DEVICE,
    OVERHEAD,
    TIME,
    linear_a,
    linear_b,
    noisy,
    two_lines,
    write_certificate,
)
from scenario.command import hfl
from test_plots_of_runs import check_layout, legend, texts
from test_report import Page

from analysis.certainty import summarise
from analysis.certainty.certificate import Certificate, load, scaled_text
from analysis.certainty.figures import figure_of
from analysis.certainty.tables import TABLES, table
from analysis.certainty.verdict import BETTER, UNDECIDED, UNKNOWN, percent, verdict
from analysis.report import report
from emulator.errors import InputError, ScenarioError
from emulator.yamlfile import from_data

COLUMN = TIME["column"]


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, one of which does not get there everywhere; two numbers and a choice; two measures; curves."""

    def slow(world: Any, seed: int) -> float:
        return math.inf if world["overhead"] > 1.7 else 300 - 20 * world["bandwidth"] / 1e6

    def device(world: Any, seed: int) -> float:
        return linear_a(world, seed) * world["overhead"] * (1.1 if world["device"] == "pi3" else 0.9)

    rules = {
        "A": {COLUMN: noisy(device, 0.05, 1), AFTER["column"]: lambda w, s: 0.8 + 0.003 * s + 0.01 * w["overhead"]},
        "B <i>": {COLUMN: noisy(linear_b, 0.05, 2), AFTER["column"]: lambda w, s: 0.81 + 0.003 * s},
        "C": {COLUMN: slow, AFTER["column"]: lambda w, s: 0.79},
    }
    tipping = [("A", "B <i>", COLUMN, "bandwidth", 5.6e6, "above"), ("A", "C", COLUMN, "overhead", "", "everywhere")]
    return write_certificate(
        tmp_path_factory.mktemp("rich"), rules, (BANDWIDTH, OVERHEAD, DEVICE), 300, 64, measures=(TIME, AFTER),
        tipping=tipping, curves=True,
    )  # fmt: skip


@pytest.fixture
def certificate(rich: Path) -> Certificate:
    return load(rich)


def draw(certificate: Certificate, kind: str, **options: Any) -> Any:
    return figure_of(kind, certificate, from_data(options, kind))


# Verdicts.


def test_a_verdict_says_what_it_depends_on(tmp_path: Path) -> None:
    certificate = load(two_lines(tmp_path, base=64))
    found = verdict(certificate, "B", "A", certificate.measures[0])
    assert (found.a, found.b, found.conclusion) == ("A", "B", BETTER)  # the better one first
    p = found.side.better
    assert found.sentence.startswith("Both methods train as they did in all 200 worlds; ")
    assert (
        f"in {percent(p.value)} of these (95 % interval {percent(p.low)} to {percent(p.high)}, over worlds and 3 seeds)"
        in found.sentence
    )
    assert "A reaches 80 % accuracy in less time than B" in found.sentence
    assert "depends most on bandwidth (total Sobol index 1.0" in found.sentence
    assert found.sentence.endswith("A is better where bandwidth is above 4 Mbit/s.")
    assert "overhead" not in found.sentence


def test_worlds_that_learn_something_else_come_first(tmp_path: Path) -> None:
    folder = two_lines(
        tmp_path, status=lambda w, m, s: "order differs" if w["overhead"] > 1.5 and s == 2 else "replayed"
    )
    certificate = load(folder)
    share = float((certificate.drawn["overhead"] <= 1.5).mean())
    assert certificate.kept == share
    found = verdict(certificate, "A", "B", certificate.measures[0])
    assert found.sentence.startswith(f"Both methods train as they did in {percent(share)} of 200 worlds; ")
    assert "the worlds left out could turn this over" in found.sentence
    assert summarise(folder).startswith(f"In {percent(share)} of 200 worlds every run trains as it did; in the others")


def test_worlds_that_were_trained_count_and_are_said(tmp_path: Path) -> None:
    folder = two_lines(tmp_path, status=lambda w, m, s: "trained" if w["overhead"] > 1.9 else "replayed")
    certificate = load(folder)
    count = int((certificate.drawn["overhead"] > 1.9).sum())
    assert certificate.kept == 1
    assert f"were trained afresh ({count})" in verdict(certificate, "A", "B", certificate.measures[0]).sentence
    assert f"({count} worlds)" in summarise(folder)


def test_several_changes_over_one_unknown_are_counted(tmp_path: Path) -> None:
    tipping = [("A", "B", COLUMN, "bandwidth", 2e6, "below"), ("B", "A", COLUMN, "bandwidth", 4e6, "below")]
    certificate = load(two_lines(tmp_path, tipping=tipping))
    found = verdict(certificate, "A", "B", certificate.measures[0])
    assert found.sentence.endswith("with all else at its middle, the winner changes 2 times over bandwidth.")


def test_undecided_says_so(tmp_path: Path) -> None:
    rules = {"A": {COLUMN: noisy(linear_a, 1.0, 3)}, "B": {COLUMN: noisy(linear_b, 1.0, 4)}}
    certificate = load(write_certificate(tmp_path, rules))
    found = verdict(certificate, "A", "B", certificate.measures[0])
    assert found.conclusion == UNDECIDED
    assert "it is undecided whether" in found.sentence
    assert f"3 seeds leave open which is better in {percent(found.side.open)}" in found.sentence


def test_nothing_known_says_so(tmp_path: Path) -> None:
    folder = two_lines(tmp_path, status=lambda w, m, s: "order differs")
    certificate = load(folder)
    found = verdict(certificate, "A", "B", certificate.measures[0])
    assert found.conclusion == UNKNOWN
    assert found.sentence.startswith("In none of 200 worlds")
    assert "unknown" in table("certainty", certificate).text()
    assert "In 0 % of 200 worlds" in summarise(folder)
    with pytest.raises(InputError, match="in no world"):
        draw(certificate, "ratios")


def test_one_seed_is_no_interval_over_seeds(tmp_path: Path) -> None:
    certificate = load(two_lines(tmp_path, seeds=(1,)))
    assert (
        "over worlds alone, as there is but one seed"
        in verdict(certificate, "A", "B", certificate.measures[0]).sentence
    )


def test_methods_without_a_common_seed_are_not_compared(tmp_path: Path) -> None:
    folder = two_lines(tmp_path)
    about = yaml.safe_load((folder / "certificate.yaml").read_text())
    about["runs"] = [run for run in about["runs"] if (run["method"] == "A") == (run["seed"] == 1)]
    (folder / "certificate.yaml").write_text(yaml.safe_dump(about))
    with pytest.raises(InputError, match="no seed in common"):
        summarise(folder)


def test_never_is_said(certificate: Certificate) -> None:
    found = verdict(certificate, "A", "C", certificate.measures[0])
    never = float((certificate.drawn["overhead"] > 1.7).mean())
    assert f"{percent(never)} of the replays of C never get there, and count as lost" in found.sentence


def test_one_method_alone_is_not_compared(tmp_path: Path) -> None:
    folder = write_certificate(tmp_path, {"A": {COLUMN: linear_a}})
    assert "one method alone" in summarise(folder)
    assert "one method alone" in report([folder])
    with pytest.raises(InputError, match="one method alone"):
        table("certainty", load(folder))


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.5, "50 %"), (0.999, "99.9 %"), (0.0004, "0.04 %"), (1e-9, "0 %")],
)
def test_percent_never_rounds_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(12.5e6, "bit/s", "12.5 Mbit/s"), (865e-9, "s", "865 ns"), (7200.0, "s", "7,200 s"), (0.5, "", "0.5"),
    (0.0, "s", "0 s"), (999.6, "B", "1 kB")],
)  # fmt: skip
def test_values_of_unknowns_are_written_with_prefixes(value: float, unit: str, text: str) -> None:
    assert scaled_text(value, unit) == text


# Tables.


def test_the_table_of_certainty_has_the_figures(certificate: Certificate) -> None:
    made = table("certainty", certificate)
    rows = list(csv.DictReader(io.StringIO(made.csv())))
    assert [(row["measure"], row["a"], row["b"]) for row in rows] == [
        (m.column, a, b) for m in certificate.measures for a, b in (("A", "B <i>"), ("A", "C"), ("B <i>", "C"))
    ]
    side = certificate.against("A", "B <i>", certificate.measures[0])
    assert float(rows[0]["p_a_beats_b"]) == side.better.value
    assert float(rows[0]["p_low"]) <= float(rows[0]["p_a_beats_b"]) <= float(rows[0]["p_high"])
    assert percent(side.better.value) in made.text()
    assert r"\%" in made.latex()
    assert "| A | B <i> |" in made.markdown()


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_has_every_form(certificate: Certificate, kind: str) -> None:
    made = table(kind, certificate)
    assert len(made.data)
    for text in (made.text(), made.csv(), made.markdown(), made.latex()):
        assert text.endswith("\n")
        assert "nan %" not in text


def test_tipping_points_are_written_with_units(certificate: Certificate) -> None:
    text = table("tipping", certificate).text()
    assert "above 5.6 Mbit/s" in text
    assert "over its whole range" in text


# Pictures.


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ratios", {}), ("ratios", {"measure": AFTER["column"]}), ("tornado", {}), ("tornado", {"measure": AFTER["column"]}),
        ("tornado", {"methods": ["B <i>", "C"]}), ("winners", {}), ("winners", {"over": ["overhead", "bandwidth"]}),
        ("world-curves", {}), ("world-curves", {"x": "bytes", "title": "Mine"}),
    ],
)  # fmt: skip
def test_pictures_are_legible(certificate: Certificate, kind: str, options: dict[str, Any]) -> None:
    figure = draw(certificate, kind, **options)
    check_layout(figure)
    if "title" in options:
        assert "Mine" in texts(figure)


def test_a_curve_of_ratios_crosses_one_at_p(certificate: Certificate) -> None:
    figure = draw(certificate, "ratios", methods=["A", "B <i>"])
    line = figure.axes[0].lines[0]
    x, y = line.get_xdata(), line.get_ydata()
    below = max(share for ratio, share in zip(x, y, strict=True) if ratio < 1)
    p = certificate.against("A", "B <i>", certificate.measures[0]).better
    assert below == pytest.approx(p.value)
    assert percent(p.value) in legend(figure)[0]


def test_the_line_of_the_map_is_where_it_tips(tmp_path: Path) -> None:
    certificate = load(two_lines(tmp_path))
    figure = draw(certificate, "winners", over=["bandwidth", "overhead"])
    [path] = [
        p for c in figure.axes[0].collections for p in c.get_paths() if len(p.vertices) > 50 and len(c.get_paths()) == 1
    ][-1:]
    assert path.vertices[:, 0] == pytest.approx(4e6, rel=0.01)
    assert "tipping point, all else at its middle" in legend(figure)


def test_the_tornado_reaches_the_medians_of_the_quarters(tmp_path: Path) -> None:
    certificate = load(two_lines(tmp_path, worlds=400))
    figure = draw(certificate, "tornado")
    bars = figure.axes[0].patches
    bandwidth = certificate.drawn["bandwidth"].to_numpy() / 1e6
    ratio = pd.Series((200 - 10 * bandwidth) / (120 + 10 * bandwidth))
    low = ratio[bandwidth < pd.Series(bandwidth).quantile(0.25)].median()
    ends = {round(bar.get_x() + bar.get_width(), 3) for bar in bars}
    assert round(float(low), 3) in ends


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("nix", {}, "unknown picture of a certificate 'nix'"), ("ratios", {"measure": "x"}, "unknown measure 'x'"),
        ("ratios", {"methods": ["A", "X"]}, "unknown method 'X'"), ("ratios", {"methods": ["A"]}, "at least two different"),
        ("winners", {"over": ["bandwidth"]}, "two different unknowns"),
        ("winners", {"over": ["bandwidth", "device"]}, "with numbers"),
        ("winners", {"over": ["bandwidth", "x"]}, "unknown quantity 'x'"), ("tornado", {"over": 1}, "unknown key"),
    ],
)  # fmt: skip
def test_wrong_options_are_said(certificate: Certificate, kind: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises((InputError, ScenarioError), match=re.escape(said)):
        draw(certificate, kind, **options)


# The page, and the commands.


def test_the_page_needs_nothing_else_and_takes_no_text_for_markup(rich: Path) -> None:
    text = report([rich])
    page = Page(text)
    assert page.open == []
    assert "i" not in page.tags
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    for title in (
        "Verdicts",
        "How sure",
        "What decides",
        "Who is best where",
        "Where it tips",
        "Curves over worlds",
        "What is uncertain",
    ):
        assert title in page.texts
    assert report([rich]) == text


def test_the_commands_take_certificates(rich: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tornado.png"
    assert hfl("plot", "tornado", rich, "--out", picture).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    done = hfl("table", "certainty", rich, "--format", "csv")
    assert (done.code, done.out.splitlines()[0].split(",")[0]) == (0, "measure")
    assert hfl("report", rich, "--out", tmp_path / "page.html").code == 0
    assert "tornado" in hfl("plot", "--help").out
    assert "deciding" in hfl("table", "--help").out
    assert "winners" in hfl("list", "plots").out


def test_plot_from_python_takes_a_certificate(rich: Path, tmp_path: Path) -> None:
    from emulator.api import plot

    picture = plot("ratios", rich, tmp_path / "ratios.png", methods=["A", "C"])
    assert (tmp_path / "ratios.png").read_bytes() == picture.png
    with pytest.raises(InputError, match="unknown picture of a certificate"):
        plot("breakdown", rich)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plot", "breakdown"), "unknown picture of a certificate 'breakdown'"),
        (("table", "totals"), "unknown table of a certificate"),
        (("table", "certainty", "--target", "0.5"), "--target"), (("report", "."), "give it alone"),
        (("plot", "tornado", "--set", "nix=1"), "unknown key"),
    ],
)  # fmt: skip
def test_the_commands_refuse(rich: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    out = () if words[0] == "table" else ("--out", tmp_path / "x.png")
    done = hfl(*words, rich, *out)
    assert done.code == 2
    assert said in done.err
