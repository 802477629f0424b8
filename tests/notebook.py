"""Executes notebooks in a kernel of their own. ``python tests/notebook.py FILE`` writes what came out into the file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]


def executed(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """A copy of a notebook with what its cells gave in a new kernel, which works in ``folder``. Raises what a cell raised."""
    done = nbformat.from_dict(notebook)
    own = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "IPYTHONDIR": str(folder / "ipython")}
    with mock.patch.dict(os.environ, own | {"OMP_NUM_THREADS": "1"}):
        client = NotebookClient(done, timeout=int(PATIENCE_S), kernel_name="python3", record_timing=False)
        client.execute(cwd=str(folder))
    return done


def texts(notebook: NotebookNode) -> list[list[str]]:
    """What the cells of a notebook show, as plain text."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [["".join(o.get("text") or o.get("data", {}).get("text/plain", "")) for o in cell.outputs] for cell in code]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        found = executed(nbformat.read(file, as_version=4), Path(place))
    found.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(found, file)
