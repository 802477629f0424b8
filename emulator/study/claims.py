"""Claims of a study: which runs each is about, and what is wrong with those that can be about none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from emulator.errors import InputError, Problem, quote_all, suggestion
from emulator.measures import ACCURACY, Measure
from emulator.study.names import short_names, text_of
from emulator.study.quantities import QUANTITIES, SHARE
from emulator.study.schema import Claim, same_value
from emulator.units import Dimension
from emulator.yamlfile import Document, Path_

Values = Mapping[str, Any]  # what runs have in columns


class Given(NamedTuple):
    """What claims need not say themselves: whether the study has a target, and it or all of its runs the same budget.

    ``budgets`` says where one could stand.
    """

    target: bool
    budget: bool
    budgets: str = "the claim or of the study, or the same limit of cost, time or bytes in 'stop' of every run"
    measure: Measure = ACCURACY  # by which runs are judged


@dataclass(frozen=True)
class Place:
    """Where a claim is judged: what the runs of its two sides have in columns, and what both have in ``at``.

    ``at`` holds columns that neither side names: together the three say which runs are meant, but for the seed.
    """

    better: Values
    than: Values
    at: Values

    def is_better(self, run: Values) -> bool:
        """Whether a run is of the side that is said to be better."""
        return _has(run, self.better) and _has(run, self.at)

    def is_other(self, run: Values) -> bool:
        """Whether a run is of the side that is said to be worse."""
        return _has(run, self.than) and _has(run, self.at)


def places(claim: Claim, columns: Sequence[str], runs: Sequence[Values]) -> list[Place]:
    """The places of a claim in a study that varies ``columns``: one for each point that it leaves open.

    ``runs`` are what each run has in the columns. Raises `InputError` with the key of the claim that is to blame.
    """
    better, than = _sides(claim, columns, runs)
    where = {}
    for name, value in claim.where.items():
        column = _column(name, columns, "where")
        if column in better:
            raise InputError(f"'{name}' is what the two sides differ in", "where")
        where[column] = _known(value, column, runs, "where")
    rest = [c for c in columns if c not in better]
    points = {tuple(run[c] for c in rest): None for run in runs if _has(run, where)}
    if not points:
        raise InputError("no run is of these values", "where")
    return [Place(better, than, dict(zip(rest, point, strict=True))) for point in points]


def least_difference(claim: Claim, measure: Measure = ACCURACY) -> float:
    """The least difference that matters, in SI units. Raises `InputError` where it is none of the claim's quantity."""
    unit, given = QUANTITIES[claim.quantity].unit, claim.by
    if given == 0:
        return 0.0
    if isinstance(unit, Dimension):
        if not isinstance(given, str):
            raise InputError(f"{given:g} has no unit; write for example '{unit.example}'", "by")
        try:
            found = unit.parse(given)
        except ValueError as error:
            raise InputError(str(error), "by") from None
    elif isinstance(given, str):
        example = "a share such as 0.01" if unit == SHARE else "a number such as 2"
        raise InputError(f"expected {example}, not '{given[:40]}'", "by")
    else:
        found = float(given)
    share = unit == SHARE and measure.share
    if found < 0 or (share and found >= 1):
        raise InputError(f"{given} is no difference; it is from 0 up" + (" to 1" if share else ""), "by")
    return found


def title(claim: Claim, place: Place, columns: Sequence[str], target: float | None, measure: Measure = ACCURACY) -> str:
    """A claim as people say it: ``VISIT better than FedSeq in rounds to 60 %``. ``target`` is what the study has."""
    goal = claim.target or target
    what = str(claim.quantity).removesuffix("-to-target").replace("-", " ")
    if QUANTITIES[claim.quantity].judged:
        what = what.replace(ACCURACY.name, measure.called)
    if QUANTITIES[claim.quantity].needs == "target" and goal:
        what += f" to {measure.goal_text(goal)}"
    if claim.budget is not None:
        said = claim.budget.model_dump(exclude_none=True)
        what += f" ({', '.join(f'{name} {said[name]}' for name in said)})"
    what += f", by more than {claim.by}" if claim.by else ""
    return f"{side_text(place.better, columns)} better than {side_text(place.than, columns)} in {what}"


def side_text(given: Values, columns: Sequence[str]) -> str:
    """One side of a claim, or a point of it: values of variants by their names, others with what they are values of."""
    shorter = short_names(columns)
    return ", ".join(
        text_of(value)
        if column in ("variant", "method", "world")
        else f"{shorter.get(column, column).replace('_', ' ')} = {text_of(value)}"
        for column, value in given.items()
    )


def wrong_claims(
    document: Document, at: Path_, claims: Sequence[Claim], columns: Sequence[str], runs: Sequence[Values], given: Given
) -> Iterator[Problem]:
    """What is wrong with the claims that stand ``at`` a place of a study. ``given`` is what they need not say."""
    seen: dict[tuple[Any, ...], int] = {}
    for i, claim in enumerate(claims):
        for key, message in _wrong(claim, columns, runs, given):
            path: Path_ = (*at, i, *([key] if key else []))
            yield document.problem(path, message)
        said = tuple(
            text_of(getattr(claim, name)) for name in ("better", "than", "quantity", "where", "target", "budget", "by")
        )
        if said in seen:
            yield document.problem((*at, i), f"says the same as claim {seen[said] + 1}")
        seen.setdefault(said, i)


def _wrong(claim: Claim, columns: Sequence[str], runs: Sequence[Values], given: Given) -> Iterator[tuple[str, str]]:
    for check in (lambda: places(claim, columns, runs), lambda: least_difference(claim, given.measure)):
        try:
            check()
        except InputError as error:
            yield error.key, error.message
    needs = QUANTITIES[claim.quantity].needs
    for name, own, common in (("target", claim.target, given.target), ("budget", claim.budget, given.budget)):
        if name == needs and own is None and not common:
            whose = given.budgets if name == "budget" else "the claim or of the study"
            yield "in", f"'{claim.quantity}' needs a '{name}', of {whose}"
        elif name != needs and own is not None:
            users = quote_all(q for q, quantity in QUANTITIES.items() if quantity.needs == name)
            yield name, f"'{claim.quantity}' has no {name}; it goes with {users}"


def _sides(claim: Claim, columns: Sequence[str], runs: Sequence[Values]) -> tuple[Values, Values]:
    sides = {"better": claim.better, "than": claim.than}
    plain = [key for key, given in sides.items() if not isinstance(given, Mapping)]
    if len(plain) == 1:
        raise InputError("name both sides alike: both by a value, or both by a mapping", plain[0])
    if plain:
        column = _common_column(sides, columns, runs)
        found = {key: {column: _known(given, column, runs, key)} for key, given in sides.items()}
    else:
        found = {
            key: {(c := _column(name, columns, key)): _known(value, c, runs, key) for name, value in given.items()}
            for key, given in sides.items()
        }
        if found["better"].keys() != found["than"].keys():
            names = quote_all(short_names(columns).get(c, c) for c in found["better"])
            raise InputError(f"name here what 'better' names: {names}", "than")
    if all(same_value(value, found["than"][c]) for c, value in found["better"].items()):
        raise InputError("both sides are the same", "than")
    return found["better"], found["than"]


def _common_column(sides: Mapping[str, Any], columns: Sequence[str], runs: Sequence[Values]) -> str:
    """What both sides are values of."""
    known = {c: {text_of(run[c]) for run in runs} for c in columns}
    candidates = [c for c in columns if all(text_of(given) in known[c] for given in sides.values())]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = " or ".join(f"{{{short_names(columns)[c]}: {text_of(sides['better'])}}}" for c in candidates)
        raise InputError(f"this may be a value of several things varied; say {names}", "better")
    if not columns:
        raise InputError("the study has neither 'variants' nor a 'grid' to compare", "better")
    every = list(itertools.chain.from_iterable(sorted(known[c]) for c in columns))
    for key, given in sides.items():
        if text_of(given) not in every:
            hint = suggestion(text_of(given), every, "there are")
            raise InputError(f"no run has '{text_of(given)[:60]}'; {hint}", key)
    raise InputError("this is a value of something else than 'better'", "than")


def _column(name: str, columns: Sequence[str], key: str) -> str:
    short = {s: column for column, s in short_names(columns).items()}
    if name in columns or name in short:
        return short.get(name, name)
    hint = suggestion(name, {*columns, *short}, "it varies")
    raise InputError(f"'{name[:60]}' is nothing that this study varies beside the seed; {hint}", key)


def _known(value: Any, column: str, runs: Sequence[Values], key: str) -> Any:
    """The value of runs that is meant."""
    found = next((run[column] for run in runs if same_value(value, run[column])), None)
    if found is None:
        hint = suggestion(text_of(value), {text_of(run[column]) for run in runs}, "there are")
        raise InputError(f"no run has '{text_of(value)[:60]}' there; {hint}", key)
    return found


def _has(run: Values, wanted: Values) -> bool:
    return all(same_value(value, run[column]) for column, value in wanted.items())
