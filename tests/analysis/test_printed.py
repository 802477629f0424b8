"""Tables over methods in all four formats, against figures worked out by hand."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from analysis_samples import make_run, metrics
from ledger_samples import write_run

from analysis.printed import FORMATS, table
from analysis.series import Series
from analysis.texttable import TextTable, latex_text
from emulator.errors import InputError

# Rounds end at 10, 20, ... s with 1, 2, ... kB, 100, 200, ... client-seconds and 5, 10, ... J.
QUICK = [
    make_run(metrics(y), "quick", seed=i) for i, y in enumerate([[0.1, 0.5, 0.6], [0.1, 0.3, 0.5], [0.1, 0.2, 0.4]])
]
SERIES = [
    Series("quick & 50 % off", tuple(QUICK)),
    Series("slow_one", (make_run(metrics([0.1, 0.2, 0.3, 0.7]), "slow"),)),
]


def test_cost_to_target_is_the_mean_of_the_seeds_that_reached_it() -> None:
    made = table("cost-to-target", SERIES, 0.5).data.set_index("label")
    quick, slow = made.loc["quick & 50 % off"], made.loc["slow_one"]
    assert (quick["seeds"], quick["reached"], quick["target_accuracy"]) == (3, 2, 0.5)
    assert (quick["round_mean"], quick["time_s_mean"], quick["bytes_total_mean"]) == (1.5, 15, 1500)
    assert (quick["cost_s_mean"], quick["energy_j_mean"]) == (150, 7.5)
    assert quick["time_s_ci95"] == pytest.approx(12.7062 * 5, rel=1e-4)  # Student's t for two values 10 apart
    assert (slow["reached"], slow["time_s_mean"]) == (1, 30)
    assert table("cost-to-target", SERIES).data["target_accuracy"].tolist() == [0.4, 0.4]  # the highest that all reach


def test_the_four_formats_say_the_same() -> None:
    made = table("cost-to-target", SERIES, 0.65)
    text, markdown, latex = made.text(), made.markdown(), made.latex()
    assert text.splitlines()[0] == "To reach 65 % test accuracy; mean of the seeds that did ± half of the 95 % interval"
    assert text.splitlines()[2].split() == ["method", "reached", "round", "time", "data", "cost", "energy"]
    assert text.splitlines()[4].split("  ")[0] == "quick & 50 % off"
    assert text.splitlines()[4].count("not reached") == 5
    assert text.splitlines()[-1].split()[:4] == ["slow_one", "1", "of", "1"]
    assert (
        "| slow_one | 1 of 1 | 3 (one seed) | 30 s (one seed) | 3 kB (one seed) | 300 client-s (one seed) |" in markdown
    )
    assert "|---|---:|---:|---:|---:|---:|---:|" in markdown
    assert r"    quick \& 50 \% off & 0 of 3 & not reached & not reached" in latex
    assert (
        r"    slow\_one & 1 of 1 & 3 (one seed) & 30 s (one seed) & 3 kB (one seed) & 300 client-s (one seed) & 15 J"
        in latex
    )
    assert (
        r"\caption{To reach 65 \% test accuracy; mean of the seeds that did $\pm$ half of the 95 \% interval}" in latex
    )
    assert r"\begin{tabular}{lrrrrrr}" in latex
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"):
        assert latex.count(part) == 1
    read = pd.read_csv(io.StringIO(made.csv()))
    pd.testing.assert_frame_equal(read, made.data, check_dtype=False)
    assert read["time_s_mean"].isna().tolist() == [True, False]
    assert set(FORMATS) == {"text", "csv", "markdown", "latex"}


def test_latex_takes_no_sign_for_a_command() -> None:
    assert latex_text(r"a\b{c}_d^e~f$#<>&%") == (
        r"a\textbackslash{}b\{c\}\_d\textasciicircum{}e\textasciitilde{}f\$\#\textless{}\textgreater{}\&\%"
    )
    assert TextTable("t", ("a|b",), ((r"c\|d",),), (False,)).markdown().splitlines()[2:] == [
        r"| a\|b |",
        "|---|",
        r"| c\\\|d |",
    ]


def test_whole_runs() -> None:
    made = table("totals", SERIES)
    quick = made.data.iloc[0]
    assert quick["final_accuracy_mean"] == pytest.approx(0.5)
    assert quick["best_accuracy_mean"] == pytest.approx(0.5)
    assert (quick["time_s_mean"], quick["cost_s_mean"], quick["energy_j_mean"]) == (20, 200, 10)
    assert "50.0 ± 24.8 %" in made.text()
    assert "± 0" not in made.text()  # all seeds took as long
    assert "mean" not in table("totals", SERIES[1:]).text()


def test_tables_of_what_clients_do(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    assert table("breakdown", [run]).text().splitlines()[-1].split() == [
        "fedavg",
        "6.0",
        "2.0",
        "5.0",
        "3.0",
        "2.0",
        "10.0",
    ]
    assert table("breakdown", [run]).data["waiting_s_mean"].tolist() == [10]
    slow = table("stragglers", [run])
    assert slow.sections[0].rows[0] == ("client-0", "pi-0", "5.5 s", "0 s", "1.38", "2 of 2")
    assert slow.data["client"].tolist() == [2, 1, 0]


def test_an_unknown_table_and_a_senseless_target() -> None:
    with pytest.raises(InputError, match="unknown table 'cost-to-targe'; did you mean 'cost-to-target'"):
        table("cost-to-targe", SERIES)
    with pytest.raises(InputError, match=r"for 80 per cent write 0\.8"):
        table("cost-to-target", SERIES, 80)
