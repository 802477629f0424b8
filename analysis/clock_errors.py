"""How far one run's clock is off another's: phases, rounds, who came first, and totals.

The two are runs of one scenario: an emulated one and a measured one (whose manifest says ``clock: measured``), or any two in
different worlds. What happened in both is matched by what it was, who did it with whom, and in which round; what happened
in one alone is counted and never dropped. Errors are (first - second) / second: with a minus the first is too fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import activity
from analysis.differences import differences
from analysis.runs import Run, check_trained, measure_of
from analysis.seeds import mean_and_interval
from emulator.errors import InputError, quote_all
from emulator.ledger import CLIENT_SERVER, COMPUTE, DONE, EVALUATION, GROUP_OPERATION, TEXTS, TRANSFER

if TYPE_CHECKING:
    import pandas as pd

MEASURED = "measured"
WORLD = ("topology", "stop", "evaluate", "compute", "name", "notes", "output")  # in which the runs may differ
KEY = ("kind", "what", "hop", "who", "peer", "round", "group", "group_round", "status")
SAME_INSTANT = 1e-9  # arrivals that are no further apart than this share of the time are at one instant
_PART_OF_HOP = {"client-client": "client to client", "client-server": "up", "server-client": "down"}


@dataclass(frozen=True, eq=False)
class ClockErrors:
    """What `compare` found. Shares are shares (0.05 for 5 %); what is not known is nan.

    ``phases`` has a row for each phase: ``matched``, ``only_first`` and ``only_second`` activities, ``rows_first`` and
    ``rows_second`` (rows of the ledgers in all), ``first_s`` and ``second_s`` (means of those matched), ``error`` of the sum,
    ``ci95`` (half the interval of the error's mean over rounds) and ``absolute`` (the mean of what each is off, as a share of the
    mean). ``rounds`` has a row for each round that is in either: ``first_s``, ``second_s`` (how long it lasted), ``error``.
    ``arrivals`` has one for each round in which something was sent up: ``matched``, ``only_first``, ``only_second``, ``pairs``,
    ``same``, ``swapped``, ``tied``, ``tau`` (Kendall's tau-b), ``turns`` and ``same_first``. ``totals`` has ``what``, ``unit``,
    ``first``, ``second``, ``error``.
    """

    first: Run
    second: Run
    phases: pd.DataFrame
    rounds: pd.DataFrame
    arrivals: pd.DataFrame
    totals: pd.DataFrame

    @property
    def names(self) -> tuple[str, str]:
        """What the two runs are called."""
        return names(self.first, self.second)

    @property
    def round_error(self) -> tuple[float, float, float]:
        """Of the rounds in both: mean error of their lengths, half of its 95 % interval, and the mean absolute error."""
        known = self.rounds["error"].dropna()
        return (*mean_and_interval(known.tolist()), float(known.abs().mean()))


def is_measured(run: Run) -> bool:
    """Whether the run's seconds are those of real machines."""
    return run.manifest.get("clock") == MEASURED


def names(first: Run, second: Run) -> tuple[str, str]:
    """What two runs are called beside each other."""
    if is_measured(second):
        return ("measured again" if is_measured(first) else "emulated"), MEASURED
    return "first", "second"


def compare(first: Run, second: Run) -> ClockErrors:
    """The errors of the first run's clock against the second's.

    Raises `InputError` where the two are not of one scenario but for the world they are played in, the first alone is measured,
    or one has no ledger.
    """
    check_comparable(first, second)
    phases = [*_phases(first, second), _waiting(first, second)]
    return ClockErrors(
        first, second, _frame([p for p in phases if p["matched"] or p["only_first"] or p["only_second"]]),
        _rounds(first, second), _arrivals(first, second), _totals(first, second),
    )  # fmt: skip


def check_comparable(first: Run, second: Run) -> None:
    """Raises `InputError` where the clocks of two runs cannot be compared: see `compare`."""
    if is_measured(first) and not is_measured(second):
        raise InputError(
            f"the run in '{first.folder}' is measured and the one in '{second.folder}' is emulated: give the emulated one first"
        )
    if first.label != second.label:
        raise InputError(
            f"clocks are compared of runs of one method: the run in '{first.folder}' is of {first.label}, the one in "
            f"'{second.folder}' of {second.label}"
        )
    own = [{key: value for key, value in run.scenario.items() if key not in WORLD} for run in (first, second)]
    if all(own):
        if first.seed != second.seed:
            raise InputError(f"clocks are compared of runs of one seed, not of {first.seed} and {second.seed}")
        found = differences(own)
        if found:
            key, (one, other) = next(iter(found.items()))
            more = f"; they differ in {len(found)} keys" if len(found) > 1 else ""
            raise InputError(
                f"clocks are compared of runs that differ in 'topology' alone: '{key}' is {one} in '{first.folder}' and {other} "
                f"in '{second.folder}'{more}"
            )
    fleets = [_clients(run) for run in (first, second)]
    if fleets[0] != fleets[1]:
        apart = sorted(fleets[0] ^ fleets[1])
        shown = quote_all(f"client-{c}" for c in apart[:5]) + (", ..." if len(apart) > 5 else "")
        raise InputError(
            f"clocks are compared of runs with the same clients: '{first.folder}' has {len(fleets[0])}, '{second.folder}' "
            f"{len(fleets[1])}; in one of them alone: {shown}"
        )


def _clients(run: Run) -> set[int]:
    """The numbers of all clients of a run's fleet; where no file says it, of those that did something."""
    if (run.folder / "energy.csv").is_file():
        return set(activity.client_numbers(run.energy["client"]).tolist())
    return set(activity.client_spans(run)["client"].tolist())


def _frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))


def off(first: float, second: float) -> float:
    """The relative error; 0 where both are 0, nan where the second alone is, or one is not known."""
    if second:
        return first / second - 1
    return math.nan if first else 0.0


def matched(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """What is in two ledgers side by side, by `KEY`: columns of the first end in ``_1``, of the second in ``_2``.

    Rows that are alike in all of `KEY` are one activity: real secure aggregation is a group operation in several steps. Of each
    there are ``lasts`` (the sum of its rows' seconds), ``end_s`` (of the last) and ``rows``. ``_merge`` says which have it:
    ``both``, ``left_only`` or ``right_only``.
    """
    sides = []
    for ledger in (first, second):
        rows = ledger.astype({name: str for name in KEY if name in TEXTS})
        rows = rows.assign(lasts=rows["end_s"] - rows["start_s"], rows=1)
        folded = rows.groupby(list(KEY), sort=False, as_index=False)
        sides.append(folded.agg({"lasts": "sum", "end_s": "max", "rows": "sum"}))
    return sides[0].merge(sides[1], how="outer", on=list(KEY), suffixes=("_1", "_2"), indicator=True)


def _part(rows: pd.DataFrame) -> np.ndarray:
    """The phase of each row of a ledger: the clients' as `analysis.activity` has them; of servers, by hop, or computing."""
    of_client = rows["who"].astype(str).str.startswith("client-")
    kind, hop = rows["kind"].astype(str), rows["hop"].astype(str)
    hops = hop.map(lambda name: _PART_OF_HOP.get(name, name.replace("-", " to ")))
    parts = np.select(
        [kind == TRANSFER, (kind == COMPUTE) & of_client, kind == COMPUTE, (kind == GROUP_OPERATION) & of_client],
        [hops, "compute", "servers compute", "group operation"],
        "group operation of servers",
    )
    return np.asarray(parts, dtype=object)


def _phases(first: Run, second: Run) -> Iterator[dict[str, Any]]:
    """The phases that are activities."""
    one, other = (run.ledger[run.ledger["kind"] != EVALUATION] for run in (first, second))
    both = matched(one, other)
    both["part"] = _part(both)
    found = list(dict.fromkeys(both["part"]))
    known = [part for part in activity.KINDS if part in found]
    for part in [*known, *sorted(set(found) - set(known))]:
        yield _errors(part, both[both["part"] == part])


def _waiting(first: Run, second: Run) -> dict[str, Any]:
    """The phase that is none: what clients wait in a round."""
    sides = [activity.by_round(run) for run in (first, second)]
    both = sides[0].merge(sides[1], how="outer", on=["client", "round"], suffixes=("_1", "_2"), indicator=True)
    column = activity.COLUMNS[activity.WAITING]
    both = both.rename(columns={f"{column}_1": "lasts_1", f"{column}_2": "lasts_2"})
    return _errors(activity.WAITING, both.assign(rows_1=both["lasts_1"].notna(), rows_2=both["lasts_2"].notna()))


def _errors(part: str, both: pd.DataFrame) -> dict[str, Any]:
    """What is said of a phase, from its activities side by side."""
    counts = both["_merge"].value_counts()
    here = both[both["_merge"] == "both"]
    one, other = here["lasts_1"].to_numpy(dtype=float), here["lasts_2"].to_numpy(dtype=float)
    by_round = here.groupby("round")[["lasts_1", "lasts_2"]].sum()
    errors = [off(float(a), float(b)) for a, b in by_round.itertuples(index=False)]
    total = float(other.sum())
    return {
        "phase": part,
        "matched": len(here),
        "only_first": int(counts.get("left_only", 0)),
        "only_second": int(counts.get("right_only", 0)),
        "rows_first": int(both["rows_1"].sum()),
        "rows_second": int(both["rows_2"].sum()),
        "first_s": float(one.mean()) if len(here) else math.nan,
        "second_s": float(other.mean()) if len(here) else math.nan,
        "error": off(float(one.sum()), total) if len(here) else math.nan,
        "ci95": mean_and_interval(errors)[1],
        "absolute": float(np.abs(one - other).sum()) / total if total else math.nan,
    }


def _rounds(first: Run, second: Run) -> pd.DataFrame:
    """How long each round lasted; what comes before the first is none."""
    sides: list[dict[int, float]] = []
    for run in (first, second):
        spans = activity.round_spans(run)
        lasted = spans["end_s"] - spans["start_s"]
        sides.append({int(number): float(s) for number, s in zip(spans.index, lasted, strict=True) if number > 0})
    rows = []
    for number in sorted(sides[0].keys() | sides[1].keys()):
        one, other = (side.get(number, math.nan) for side in sides)
        rows.append({"round": number, "first_s": one, "second_s": other, "error": off(one, other)})
    return _frame(rows)


def _arrivals(first: Run, second: Run) -> pd.DataFrame:
    """In which order clients' models came to their servers, by round. A turn is a group's round with one server."""
    sides = []
    for run in (first, second):
        rows = run.ledger
        sides.append(rows[(rows["hop"] == CLIENT_SERVER) & (rows["status"] == DONE) & (rows["round"] > 0)])
    both = matched(sides[0], sides[1])
    both = both[both["who"].str.startswith("client-")]
    found = []
    for number in sorted(set(both["round"].tolist())):
        of_round = both[both["round"] == number]
        counts = of_round["_merge"].value_counts()
        here = of_round[of_round["_merge"] == "both"]
        turns = [
            order(turn["end_s_1"].to_numpy(dtype=float), turn["end_s_2"].to_numpy(dtype=float))
            for _, turn in here.groupby(["what", "group", "group_round", "peer"])
        ]
        pairs, same, swapped, tied_1, tied_2, first_too = (sum(t[i] for t in turns) for i in range(6))
        among = (pairs - tied_1) * (pairs - tied_2)
        found.append(
            {
                "round": int(number), "matched": len(here), "only_first": int(counts.get("left_only", 0)),
                "only_second": int(counts.get("right_only", 0)), "pairs": pairs, "same": same, "swapped": swapped,
                "tied": pairs - same - swapped, "tau": (same - swapped) / math.sqrt(among) if among else math.nan,
                "turns": len(turns), "same_first": first_too,
            }
        )  # fmt: skip
    return _frame(found)


def order(one: np.ndarray, other: np.ndarray) -> tuple[int, int, int, int, int, int]:
    """How far two orders agree: pairs; of them in the same order, and swapped; tied in the one, and in the other.

    The last number is 1 where the first in the one is also first in the other (of several that are tied for it, one of them).
    Instants that are closer than `SAME_INSTANT` of the latest are tied.
    """
    from scipy.stats import kendalltau

    n = len(one)
    pairs = n * (n - 1) // 2
    places = [_places(times) for times in (one, other)]
    tied = [_pairs_within(p) for p in places]
    both = _pairs_within(places[0] * (n + 1) + places[1])
    apart = pairs - tied[0] - tied[1] + both  # tied in neither
    more = 0
    if pairs > tied[0] and pairs > tied[1]:
        tau = float(kendalltau(places[0], places[1]).statistic)
        more = round(tau * math.sqrt((pairs - tied[0]) * (pairs - tied[1])))
    same = (apart + more) // 2
    first_too = bool(((places[0] == 0) & (places[1] == 0)).any()) if n else False
    return pairs, same, apart - same, tied[0], tied[1], int(first_too)


def _places(times: np.ndarray) -> np.ndarray:
    """Places in the order of the times, from 0; equal ones share theirs."""
    by_time = np.argsort(times, kind="stable")
    steps = np.diff(times[by_time]) > SAME_INSTANT * max(1e-300, float(np.abs(times).max(initial=0.0)))
    places = np.empty(len(times), np.int64)
    places[by_time] = np.concatenate(([0], np.cumsum(steps))) if len(times) else []
    return places


def _pairs_within(values: np.ndarray) -> int:
    _, counts = np.unique(values, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def _totals(first: Run, second: Run) -> pd.DataFrame:
    """Time, bytes by hop, cost, and how far the measure is apart."""
    rows: list[dict[str, Any]] = []

    def add(what: str, unit: str, pair: Sequence[float]) -> None:
        rows.append({"what": what, "unit": unit, "first": pair[0], "second": pair[1], "error": off(pair[0], pair[1])})

    ledgers = [run.ledger for run in (first, second)]
    add("time", "s", [float(rows["end_s"].max()) for rows in ledgers])
    sent = [each[each["kind"] == TRANSFER].groupby("hop", observed=True)["bytes"].sum() for each in ledgers]
    for hop in dict.fromkeys((*sent[0].index, *sent[1].index)):
        add(f"data {hop}", "bytes", [float(each.get(hop, 0)) for each in sent])
    add("data", "bytes", [float(each.sum()) for each in sent])
    costs = []
    for each in ledgers:
        mine = each[each["who"].astype(str).str.startswith("client-")]
        lasted = (mine["end_s"] - mine["start_s"]).groupby(mine["kind"].astype(str)).sum()
        costs.append([float(lasted.get(kind, 0.0)) for kind in (COMPUTE, GROUP_OPERATION)])
    add("cost of training", "client-s", [each[0] for each in costs])
    add("cost of group operations", "client-s", [each[1] for each in costs])
    add("cost", "client-s", [sum(each) for each in costs])
    return _frame(rows)


def largest_difference(first: Run, second: Run) -> tuple[int, float]:
    """How many evaluations both runs made (by round), and by how much the measure differs at most.

    Raises `InputError` where a run is one without training, or the two are judged by different measures.
    """
    check_trained((first, second))
    name = measure_of((first, second)).name
    judged = [run.metrics.groupby("round")[name].last() for run in (first, second)]
    apart = (judged[0] - judged[1]).dropna().abs()
    return len(apart), float(apart.max()) if len(apart) else math.nan
