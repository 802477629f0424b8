"""Tables and plots from run folders.

Everything here reads what a run has written (see `analysis.runs`) and nothing else: no simulation and no
training is needed to compare runs, and a run folder from another machine will do. `analysis.tables` makes
tables, `analysis.plots` pictures.
"""

from __future__ import annotations

from analysis.runs import load_run

__all__ = ["load_run"]
