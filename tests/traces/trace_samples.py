"""Small trace files for tests, and where the real ones are."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "../shared/traces"

UCC = """\
Timestamp,Longitude,DL_bitrate,UL_bitrate,State,PINGAVG
2019.12.02_23.59.58,-8.3,100,10,D,-
2019.12.02_23.59.58,-8.3,300,10,D,-
2019.12.02_23.59.59,-8.3,-,20,D,40
2019.12.03_00.00.02,-8.3,500,-,I,60
"""


def real(name: str) -> Path:
    """A real file; skips the test where the real files are not there."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the real trace {name} is not here")
    return path


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
