"""How well a fit predicts rounds that it has not seen: phases by what it charges, rounds by playing the scenario."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.clock_errors import off
from analysis.printed import Printed
from analysis.seeds import mean_and_interval
from analysis.texttable import TextTable
from emulator import yamlfile
from emulator.assembly import assemble, play
from emulator.errors import HflError
from emulator.fitting.base import Base
from emulator.fitting.files import OVERLAY, write
from emulator.fitting.fits import Fit, fit
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.ledger import EVALUATION
from emulator.scenario.load import alone, check, parse_changes, with_changes

if TYPE_CHECKING:
    import pandas as pd

ROUND = "round"
COLUMNS = ("what", "activities", "rounds", "predicted_s", "measured_s", "error", "error_ci95", "error_absolute")


@dataclass(frozen=True)
class HeldOut:
    """Errors on rounds that were left out: the columns `COLUMNS`, a row for each phase and one for whole rounds.

    ``error`` is that of the sum, ``error_ci95`` half the 95 % interval of its mean over rounds, ``error_absolute`` the mean
    absolute error of activities or of rounds. ``unknown`` says why rounds could not be predicted, if so.
    """

    table: pd.DataFrame
    folds: int
    unknown: str = ""

    def printed(self) -> Printed:
        """As a table for people and for programs."""
        cells = tuple(
            (
                row["what"], f"{row['activities']:,}", f"{row['rounds']:,}", f"{row['predicted_s']:.4g} s",
                f"{row['measured_s']:.4g} s", _share(row["error"], row["error_ci95"]), _share(row["error_absolute"]).lstrip("+"),
            )
            for row in self.table.to_dict("records")
        )  # fmt: skip
        title = (
            f"Rounds that were left out ({self.folds} parts, each predicted from the others); errors are (predicted - measured) "
            "/ measured ± half of the 95 % interval of their mean over rounds"
        )
        header = ("", "activities", "rounds", "predicted", "measured", "error", "each is off by")
        return Printed(self.table, (TextTable(title, header, cells, (False, *(True for _ in header[1:]))),))


def _share(share: float, half: float = float("nan")) -> str:
    about = "" if np.isnan(half) else f" ± {100 * half:.1f}"
    return "unknown" if np.isnan(share) else f"{100 * share:+.1f}{about} %"


def validate(
    base: Base,
    timings: pd.DataFrame,
    lasted: pd.Series[float],
    parts: int,
    by_client: bool,
    memo: Memo,
    tell: Callable[[str], None] = lambda _: None,
) -> HeldOut | None:
    """Fits to all rounds but some and predicts these, part by part; None where there are fewer than two rounds.

    ``lasted`` are the measured seconds of each round. What was before the first round is always fitted to.
    """  # fmt: skip
    rounds = sorted(int(r) for r in lasted.index if r > 0)
    count = min(parts, len(rounds))
    if count < 2:
        return None
    predicted = np.full(len(timings), np.nan)
    lengths: dict[int, float] = {}
    unknown = ""
    for part in range(count):
        left_out = rounds[part::count]
        tell(f"fitting without rounds {', '.join(map(str, left_out[:5]))}{', ...' if len(left_out) > 5 else ''}")
        mine = timings["round"].isin(left_out).to_numpy()
        fitted = fit(base, timings[~mine], by_client)
        predicted[mine] = fitted.predict(timings[mine])
        try:
            played = round_lengths(fitted, max(rounds), memo)
            lengths |= {number: played[number] for number in left_out if number in played}
        except HflError as error:
            unknown = str(error)
    rows = [
        _phase(str(phase), part, predicted)
        for phase, part in timings.reset_index(drop=True).groupby("phase", sort=False)
    ]
    rows = [row for row in rows if row["activities"]]
    if lengths:
        rows.append(_whole(lengths, lasted))
    import pandas as pd

    return HeldOut(pd.DataFrame(rows, columns=list(COLUMNS)), count, unknown)


def _phase(phase: str, rows: pd.DataFrame, predicted: np.ndarray) -> dict[str, Any]:
    rows = rows.assign(predicted=predicted[rows.index]).dropna(subset=["predicted"])
    sums = rows.groupby("round")[["predicted", "seconds"]].sum()
    errors = [off(float(a), float(b)) for a, b in sums.itertuples(index=False)]
    apart = (rows["predicted"] - rows["seconds"]).abs()
    return _row(phase, len(rows), len(sums), (rows["predicted"].mean(), rows["seconds"].mean()), errors, apart.mean())


def _whole(lengths: dict[int, float], lasted: pd.Series[float]) -> dict[str, Any]:
    measured = [float(lasted.loc[number]) for number in lengths]
    errors = [off(a, b) for a, b in zip(lengths.values(), measured, strict=True)]
    pair = float(np.mean(list(lengths.values()))), float(np.mean(measured))
    apart = float(np.mean(np.abs(np.array(list(lengths.values())) - measured)))
    return _row(ROUND, len(lengths), len(lengths), pair, errors, apart)


def _row(
    what: str, activities: int, rounds: int, pair: tuple[float, float], errors: Sequence[float], apart_s: float
) -> dict[str, Any]:
    return {
        "what": what, "activities": activities, "rounds": rounds, "predicted_s": pair[0], "measured_s": pair[1],
        "error": off(*pair), "error_ci95": mean_and_interval(errors)[1], "error_absolute": apart_s / pair[1] if pair[1] else 0.0,
    }  # fmt: skip


def round_lengths(fitted: Fit, rounds: int, memo: Memo) -> dict[int, float]:
    """How long each round lasts where the scenario is played without training in the fitted world.

    Raises `HflError` where that cannot be done: because the method depends on what is learned, for example.
    """
    with tempfile.TemporaryDirectory() as folder:
        write(fitted, Path(folder), "some rounds")
        changes = [*parse_changes(f"@{Path(folder) / OVERLAY}"), *alone("held out")]
        changes.append(("stop", yamlfile.from_data({"rounds": rounds}, "held out")))
        loaded = check(with_changes(fitted.base.loaded.document, changes), training=False)
        with loaded.locating():
            session = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(memo)))
            play(session)
        rows = session.world.ledger.packed
        rows = rows[rows["kind"] != session.world.ledger.number(EVALUATION)]
        return {
            int(number): float(own["end_s"].max() - own["start_s"].min())
            for number in np.unique(rows["round"])
            if number > 0 and len(own := rows[rows["round"] == number])
        }
