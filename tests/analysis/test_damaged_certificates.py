"""Folders of certificates that are damaged, or of another version, are refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from certificate_samples import TIME, two_lines

from analysis.certainty.certificate import load
from emulator.errors import InputError


def _unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def _about(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        about = yaml.safe_load((folder / "certificate.yaml").read_text()) | changes
        (folder / "certificate.yaml").write_text(yaml.safe_dump(about))

    return write


def _column(name: str, column: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        pd.read_parquet(folder / name).drop(columns=column).to_parquet(folder / name)

    return write


def _twice(folder: Path) -> None:
    table = pd.read_parquet(folder / "outcomes.parquet")
    pd.concat([table, table.iloc[:1]]).to_parquet(folder / "outcomes.parquet")


def _odd_status(folder: Path) -> None:
    pd.read_parquet(folder / "outcomes.parquet").assign(status="odd").to_parquet(folder / "outcomes.parquet")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_unlink("certificate.yaml"), "is no certificate"), (_unlink("worlds.parquet"), "it has no worlds.parquet"),
        (_write("certificate.yaml", "[: x"), "is damaged"), (_write("certificate.yaml", "- 1"), "another version"),
        (_about(version=2), "another version"), (_about(runs=[{"run": "x"}]), "damaged"), (_about(measures=[]), "no measure"),
        (_about(quantities=7), "damaged"), (_about(design={"kind": "sobol", "saltelli": 3}), "0 worlds for Sobol indices"),
        (_about(measures=[{**TIME, "kind": "x"}]), "damaged"), (_write("outcomes.parquet", "PAR1 and so on"), "is damaged"),
        (_column("worlds.parquet", "overhead"), "no column 'overhead'"),
        (_column("outcomes.parquet", "status"), "no column 'status'"),
        (_twice, "twice in a world"), (_odd_status, "no status 'odd'"), (_write("tipping.csv", "a,b\n1,2\n"), "tipping.csv"),
        (_write("tipping.csv", "better,than,measure,quantity,at,side\nA,B,time_to_0.8_s,bandwidth,x,above\n"), "is damaged"),
    ],
)  # fmt: skip
def test_damaged_certificates_are_refused(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    folder = two_lines(tmp_path / "c", worlds=5)
    damage(folder)
    with pytest.raises(InputError, match=re.escape(said)):
        load(folder)
