"""The section ``privacy``: differential privacy of clients, and what it does not go together with."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from emulator.contracts.grouping import COUNTS, ESTIMATES, FormationChoice, SamplingChoice
from emulator.contracts.learning import LocalRuleChoice
from emulator.contracts.methods import TrainingChoice, methods, trainings
from emulator.contracts.selection import SelectionChoice
from emulator.contracts.world import GroupOperationChoice
from emulator.errors import quote_all
from emulator.registry import Params, choices
from emulator.yamlfile import Path_

if TYPE_CHECKING:
    from emulator.contracts.methods import Privately
    from emulator.scenario.schema import Scenario

PACKAGE, LEAST = (
    "dp-accounting",
    (0, 6),
)  # what counts epsilon; earlier ones lack the Gaussian mechanism's exact formula


class Privacy(Params):
    """Differential privacy of clients: their updates are clipped, and Gaussian noise is added."""

    at: Literal["client", "server", "distributed"] = Field(
        description="who adds the noise: each client to its own update (local privacy); the server that averages a group, to "
        "the sum; or every member its share, summed by secure aggregation"
    )
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        description="the longest update (Euclidean norm) that a client sends; longer ones are scaled down to it"
    )
    noise_multiplier: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        description="standard deviation of the noise, as a multiple of 'clip': of an update's (client), or of the sum's; 0 clips "
        "alone"
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(1e-5, description="the delta for which epsilon is counted")
    participants: Literal["public", "hidden"] = Field(
        "public",
        description="whether those who see models may know who took part in a round; 'hidden' counts the drawing of members by "
        "'participation' as protection",
    )
    shares: Literal["asked", "least"] = Field(
        "asked",
        description="distributed: by how many members the noise is divided: those who were asked, so that it is less where some "
        "drop out; or the least number with which a group goes on, so that it never is",
    )

    def wrong(self) -> Iterator[tuple[Path_, str]]:
        """What does not fit together in the section itself, and a package that is missing."""
        if not _installed():
            yield (
                ("privacy",),
                f"epsilon is counted by {PACKAGE}, which is not installed: pip install 'hfl-emulator[privacy]'",
            )
        if self.participants == "hidden" and self.at != "server":
            who = "each client's update" if self.at == "client" else "with whom it aggregates"
            yield (
                ("privacy", "participants"),
                f"'hidden' goes with 'at: server': with '{self.at}' the server itself sees {who}",
            )
        if self.shares == "least" and self.at != "distributed":
            yield ("privacy", "shares"), f"with 'at: {self.at}' noise is not divided; it goes with 'at: distributed'"


def problems_of(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """What the section does not go together with elsewhere in the scenario, each with its place."""
    privacy, method = scenario.privacy, scenario.method
    if privacy is None:
        if scenario.stop.epsilon is not None:
            yield ("stop", "epsilon"), "nothing is private here; give a section 'privacy'"
        return
    yield from privacy.wrong()
    at, params = privacy.at, method.params
    estimator = getattr(getattr(params, "estimator", None), "kind", "")
    if at not in method.plugin.facts.privacy:
        able = [name for name in methods.names() if at in methods[name].facts.privacy]
        yield (
            ("privacy", "at"),
            f"method '{method.kind}' {_why(method.plugin.facts.privacy, at)}; take {quote_all(able)}",
        )
        return
    for place, chosen in choices(method, ("method",)):
        if isinstance(chosen, TrainingChoice) and at not in chosen.plugin.facts.privacy:
            able = [name for name in trainings.names() if at in trainings[name].facts.privacy]
            yield place, f"'{chosen.kind}' {_why(chosen.plugin.facts.privacy, at)}; take {quote_all(able)}"
        if isinstance(chosen, LocalRuleChoice) and chosen().remember is not None:
            yield (
                place,
                f"'{chosen.kind}' sends a second vector, which 'privacy' does not clip; take a rule without memory",
            )
        if isinstance(chosen, SelectionChoice) and not chosen.plugin.facts.privacy:
            message = f"'{chosen.kind}' learns more of clients than numbers of labels, outside of 'privacy'"
            yield place, f"{message}; say 'uniform'"
        if isinstance(chosen, FormationChoice | SamplingChoice) and any(
            (estimator if need == ESTIMATES else need) not in COUNTS for need in chosen.plugin.facts.needs
        ):
            what = "learns more of clients' data than numbers of labels, outside of 'privacy'"
            yield place, f"'{chosen.kind}' {what}; take 'random' groups, or a rule that works on label counts"
    combination = getattr(params, "combination", None)
    if at != "client" and combination is not None and not combination.sums:
        message = f"'privacy.at: {at}' is about the mean of clipped updates; take 'mean', or say 'client'"
        yield ("method", "combination"), message
    if getattr(params, "dividing", None) is not None:
        yield ("method", "dividing"), "reads clients' models outside of 'privacy'; leave it out"
    yield from _of_operation(privacy, getattr(params, "group_operation", None))
    uplink = getattr(getattr(params, "encodings", {}).get("client"), "up", ())
    if at == "distributed" and uplink:
        message = (
            "epsilon is proved for sums of normal noise, which encoding would change; leave it out, or say 'client'"
        )
        yield ("method", "encodings", "client", "up"), message
    if privacy.participants == "hidden":
        yield from _of_hidden(scenario)


def _why(able: tuple[Privately, ...], at: str) -> str:
    if not able:
        return "does not go with 'privacy': what it takes from clients is not all clipped and noised"
    return f"shows models of single clients to others, so it goes with {quote_all(able)} alone, not with '{at}'"


def _of_operation(privacy: Privacy, operation: GroupOperationChoice | None) -> Iterator[tuple[Path_, str]]:
    chosen = [] if operation is None else [each for _, each in choices(operation)]
    sums = any(isinstance(each, GroupOperationChoice) and each.sums_only for each in chosen)
    place = ("method", "group_operation")
    if privacy.at == "distributed" and not sums:
        yield place, "shares of noise protect nobody whose update is seen alone; say 'secure-aggregation'"
    if privacy.at == "server" and sums:
        yield place, "the server sees sums alone and cannot clip single updates; say 'privacy.at: distributed'"


def _of_hidden(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """Where the drawing of members proves nothing: it is counted for single rounds of members drawn by chance."""
    place, params = ("privacy", "participants"), scenario.method.params
    if getattr(params, "participation", 1.0) == 1.0:
        yield place, "'hidden' needs a method with a 'participation' below 1: otherwise everybody takes part"
    elif not params.selection.plugin.facts.by_chance:  # type: ignore[attr-defined]
        message = "'hidden' needs members that are drawn by chance alone, all alike; say 'method.selection: uniform'"
        yield place, message
    elif params.group_rounds > 1 or any(tier.rounds > 1 for tier in params.tiers.values()):  # type: ignore[attr-defined]
        yield place, "'hidden' needs one group round in a round: the same members would take part in all of them"


def unprotected(scenario: Scenario) -> str:
    """What epsilon does not speak of, although the run uses it: in a sentence, or "" where there is nothing."""
    users = [
        f"{chosen.slot} '{chosen.kind}'"
        for _, chosen in choices(scenario.method)
        if isinstance(chosen, FormationChoice | SamplingChoice | SelectionChoice) and chosen.plugin.facts.needs
    ]
    return f"epsilon takes the clients' label counts as public, which {' and '.join(users)} works on" if users else ""


def _installed() -> bool:
    try:
        found = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in re.findall(r"\d+", found)[:2]) >= LEAST
