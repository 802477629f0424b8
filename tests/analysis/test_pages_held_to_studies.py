"""What holds docs/papers.md to finished studies: ``benchmarks/verdicts.py --check``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from analysis_samples import metrics, write_folder

from emulator.files import write_json

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "verdicts.py"
ACCURACIES = {"A": ([0.1, 0.5, 0.9], [0.1, 0.6, 0.92]), "B": ([0.1, 0.4, 0.7], [0.1, 0.3, 0.74])}


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verdicts_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder, runs = tmp_path / "s", []
    for variant, seeds in ACCURACIES.items():
        for seed, accuracies in enumerate(seeds):
            name = f"{variant}_seed-{seed}"
            write_folder(folder / name, metrics(accuracies), label=variant, seed=seed)
            runs.append({"run": name, "variant": variant, "method": variant, "point": {}, "seed": seed})
    write_json(folder / "study.json", {"name": "s", "notes": "", "columns": ["variant"], "target": None, "runs": runs})
    return folder


def check(verdicts: ModuleType, monkeypatch: pytest.MonkeyPatch, page: Path, study: Path, *lines: str) -> int:
    words = ["verdicts.py", "--check", str(page), *(["--lines", *lines, "--"] if lines else []), str(study)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        verdicts.main()
    return int(ended.value.code or 0)


def test_a_page_has_the_lines_of_its_studies_and_no_other_means(
    verdicts: ModuleType, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = study.parent / "page.md"
    # By hand: 90 and 92 % have the mean 91 % and half of the interval 12.706 * 1 %; 70 and 74 % 72 % and 12.706 * 2 %.
    final = "A 91.0 ± 12.7, B 72.0 ± 25.4 % (2 seeds)"
    page.write_text(f"| Table | {final}: A first | 3 ± 1 words |\n|---|---|\nA 7 ± 1 outside of tables\n")
    assert check(verdicts, monkeypatch, page, study) == 1
    said = capsys.readouterr().out
    assert "s: final_accuracy, best_accuracy" in said
    assert "in no line of these studies: 3 ± 1 words\n" in said
    page.write_text(f"| Table | {final}: A first |\n")
    assert check(verdicts, monkeypatch, page, study) == 0
    assert "in no line" not in capsys.readouterr().out


def test_a_figure_that_no_run_gave_is_found(
    verdicts: ModuleType, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = study.parent / "page.md"
    page.write_text("| Table | A 91.0 ± 12.7, B 73.0 ± 25.4 % (2 seeds) |\n")
    assert check(verdicts, monkeypatch, page, study) == 1
    said = capsys.readouterr().out
    assert f"s: no line of it is in {page}" in said
    assert "in no line of these studies: A 91.0 ± 12.7, B 73.0 ± 25.4 % (2 seeds)" in said


def test_curves_may_be_read_off(
    verdicts: ModuleType, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = study.parent / "page.md"
    page.write_text("| Fig. | at round 1: A 55.0 ± 63.5, B 35.0 ± 63.5 % (2 seeds) |\n")
    assert check(verdicts, monkeypatch, page, study) == 1
    assert check(verdicts, monkeypatch, page, study, "accuracy@round=1") == 0
    assert "s: accuracy@round=1\n" in capsys.readouterr().out
