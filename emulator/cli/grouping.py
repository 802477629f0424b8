"""``hfl groups``: form the groups of a scenario by one or more rules, without training, and say how good they are."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from emulator import scenario, yamlfile
from emulator.cli.app import (
    MemoOption,
    NoMemoOption,
    PluginOption,
    ScenarioArgument,
    SetOption,
    app,
    import_plugins,
    out,
)
from emulator.contracts.grouping import formations
from emulator.errors import InputError, ScenarioError, quote_all
from emulator.files import write_text
from emulator.scenario import Loaded, sharing
from emulator.scenario.checks import scale_of
from emulator.scenario.roster import describe

if TYPE_CHECKING:
    from emulator.grouping.diagnostics import Grouping
    from emulator.learning.lab import Lab
    from emulator.methods.slots import GroupSlots
    from emulator.methods.training import Group
    from emulator.world.fleet import Fleet

KNOWN = {"label-counts", "label-mix"}  # what servers can learn of the clients without any training


@dataclass(frozen=True)
class Formed:
    """What one rule made of a scenario's clients."""

    label: str
    grouping: Grouping
    overhead_s: float  # mean of all clients in one group round
    took_s: float  # on this machine

    def row(self) -> dict[str, Any]:
        """The row of the CSV file."""
        figures = {name: value for name, value in self.grouping.summary().items() if name != "round"}
        return {"rule": self.label, **figures, "overhead_s": self.overhead_s, "took_s": self.took_s}


@app.command()
def groups(
    name: ScenarioArgument,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="A formation rule: a name, or a mapping such as '{kind: cov, min_size: 8}'. Repeatable. "
            "(default: the scenario's own)",
        ),
    ] = None,
    all_rules: Annotated[
        bool, typer.Option("--all-rules", help="The scenario's own rule and all others that form groups of a size.")
    ] = False,
    changes: SetOption = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the labels of all groups (PNG, SVG or PDF).")
    ] = None,
    table: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV.")] = None,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    plugin: PluginOption = None,
) -> None:
    """Form the groups of a scenario without training, and compare formation rules.

    A rule that is named alone is tuned to about as many groups as the scenario's own rule makes, so that all pay about
    the same overhead.
    """
    import_plugins(plugin)
    if plot is not None:
        from analysis.plots.style import check_path

        check_path(plot)
    changes = [*sharing(name, changes or []), *([f"seed={seed}"] if seed is not None else [])]
    loaded = scenario.load(name, changes)
    formation = _slots(loaded).formation
    wanted = [_read(text) for text in rule or ()]
    if all_rules or not wanted:
        named = {each["kind"] for each in wanted}
        kinds = dict.fromkeys([formation.kind, *(_sized_rules() if all_rules else ())])
        wanted += [{"kind": kind} for kind in kinds if kind not in named]
    try:
        _check_needs(formation.kind, "method.formation")
        lab = _lab(loaded, memo, no_memo)
        own = _formed(loaded, lab, formation.kind)
        size = _similar_size(loaded, len(own.grouping.sizes))
        found = [
            own if given == {"kind": own.label} else _formed(_with(loaded, name, changes, given, size), lab, label)
            for given, label in zip(wanted, _labels(wanted), strict=True)
        ]
    except InputError as error:
        raise loaded.locate(error) from error
    _show(loaded, found)
    if table is not None:
        write_text(table, _csv(found))
        out.print(f"wrote {escape(str(table))}")
    if plot is not None:
        _draw(loaded, found, plot)
        out.print(f"wrote {escape(str(plot))}")


def _lab(loaded: Loaded, memo: Path | None, none: bool) -> Lab:
    from emulator.learning.lab import Lab
    from emulator.learning.memo import Memo, RunMemory, default_path

    return Lab(loaded.scenario, RunMemory(Memo(None if none else memo or default_path())))


def _read(text: str) -> dict[str, Any]:
    """What ``--rule`` names, as a mapping with ``kind``; raises `InputError` where there is no such rule."""
    given = yamlfile.parse(text, f"--rule {text}").data
    if isinstance(given, str):
        given = {"kind": given}
    if not isinstance(given, dict) or not isinstance(given.get("kind"), str):
        raise InputError(f"--rule {text}: write a name, or a mapping with 'kind', such as '{{kind: cov, min_size: 8}}'")
    try:
        _check_needs(given["kind"])
    except InputError as error:
        raise InputError(f"--rule: {error.message}") from None
    return given


def _slots(loaded: Loaded) -> GroupSlots:
    """The slots of the scenario's method; raises `InputError` where it forms no groups."""
    from emulator.methods.slots import GroupSlots

    method = loaded.scenario.method
    if not isinstance(method.params, GroupSlots):
        raise loaded.locate(InputError(f"the method '{method.kind}' forms no groups", "method"))
    return method.params


def _check_needs(kind: str, key: str = "") -> None:
    """Raises `InputError` where there is no such rule, or where it needs to know what only a run can learn."""
    unknown = sorted(set(formations[kind].facts.needs) - KNOWN)
    if unknown:
        raise InputError(f"the formation '{kind}' needs {quote_all(unknown)}, which only a run can learn", key)


def _sized_rules() -> list[str]:
    """The rules that form groups of a size from what is known without training."""
    plugins = [formations[name] for name in formations.names()]
    return [p.name for p in plugins if _size_key(p.name) and set(p.facts.needs) <= KNOWN]


def _similar_size(loaded: Loaded, groups: int) -> int:
    """The size at which groups of equal size are about as many as these; of several, the largest."""
    places = scale_of(loaded.scenario).below(_slots(loaded).aggregator)
    sizes = range(1, min(places) + 1)
    return min(sizes, key=lambda size: (abs(sum(clients // size for clients in places) - groups), -size))


def _size_key(kind: str) -> str:
    """The parameter that says how large groups are at least; "" where there is none."""
    return next((key for key in ("min_size", "size") if key in formations[kind].params.model_fields), "")


def _with(loaded: Loaded, name: str, changes: Sequence[str], given: dict[str, Any], size: int) -> Loaded:
    """The scenario with another formation; one that is named alone gets the size.

    Another one of the scenario's own kind differs from it in what is given.
    """
    own, key = _slots(loaded).formation, _size_key(given["kind"])
    if given["kind"] == own.kind:
        given = {**own.dump(), **given}
    elif set(given) == {"kind"} and key:
        given = {**given, key: size}
    change = f"method.formation={json.dumps(given)}"
    try:
        return scenario.load(name, [*changes, change])
    except ScenarioError as error:
        problems = [replace(p, file=p.file.replace(f"--set {change}", "--rule")) for p in error.problems]
        raise ScenarioError(tuple(problems)) from None


def _labels(wanted: Sequence[dict[str, Any]]) -> list[str]:
    """The kind of each rule, with its parameters where the kind alone does not tell it from the others."""
    kinds = [given["kind"] for given in wanted]
    return [
        " ".join(
            [given["kind"], *(f"{k}={v}" for k, v in given.items() if k != "kind" and kinds.count(given["kind"]) > 1)]
        )
        for given in wanted
    ]


def _formed(loaded: Loaded, lab: Lab, label: str) -> Formed:
    """Forms the groups of a scenario as its run would before the first round."""
    from emulator.methods.forming import form_groups, grouping_of
    from emulator.world.fleet import Fleet

    setting, method = loaded.scenario, _slots(loaded)
    fleet, counts = Fleet(setting.topology, setting.seed), lab.clients.label_counts
    start = time.perf_counter()
    formed = form_groups(fleet, counts, method.formation, method.aggregator, setting.seed, 1)
    took_s = time.perf_counter() - start
    grouping = grouping_of(formed, counts, getattr(method, "sampling", None), 1)
    return Formed(label, grouping, _overhead_s(fleet, formed, lab, method), took_s)


def _overhead_s(fleet: Fleet, groups: Sequence[Group], lab: Lab, method: GroupSlots) -> float:
    """Seconds of the scenario's group operation in one group round, on average over all clients."""
    from emulator.contracts.world import Meeting

    operation = method.group_operation
    if operation.kind == "none":
        return 0.0
    parameters, vectors = lab.model_facts.parameters, method.local().vectors
    known: dict[tuple[int, int, str], float] = {}
    total_s = 0.0
    for group in groups:
        for client in group.members:
            device, size = fleet.client_devices[client], len(group.members)
            key = (id(device), size, group.aggregator)
            if key not in known:
                known[key] = operation(
                    Meeting(device, fleet.device(group.aggregator), size, parameters, vectors)
                ).seconds
            total_s += known[key]
    return total_s / sum(len(group.members) for group in groups)


def _show(loaded: Loaded, found: Sequence[Formed]) -> None:
    from analysis.quantities import time_text
    from analysis.texttable import TextTable

    topology, method = loaded.scenario.topology, _slots(loaded)
    header = ("rule", "groups", "size", "mean size", "mean CoV", "overhead", "formed in", "outside")
    columns = len(header) if any(each.grouping.outside for each in found) else len(header) - 1
    rows = []
    for each in found:
        figures = each.grouping.summary()
        least, most = figures["smallest"], figures["largest"]
        rows.append(
            (
                each.label,
                str(figures["groups"]),
                str(least) if least == most else f"{least} to {most}",
                f"{figures['mean_size']:.2f}",
                f"{figures['mean_cov']:.3f}",
                time_text(each.overhead_s),
                time_text(each.took_s),
                str(each.grouping.outside),
            )[:columns]
        )
    fleet = f"{describe(topology)}, seed {loaded.scenario.seed}"
    title = f"{loaded.scenario.name}: {fleet}; overhead of a client in a group round: {method.group_operation.kind}"
    right = (False, *[True] * (columns - 1))
    out.print(TextTable(title, header[:columns], tuple(rows), right).text(), markup=False)


def _csv(found: Sequence[Formed]) -> str:
    file = io.StringIO()
    rows = [each.row() for each in found]
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _draw(loaded: Loaded, found: Sequence[Formed], path: Path) -> None:
    from analysis.plots import groups as plots

    rules = [
        plots.RuleGroups(
            each.label,
            each.grouping.label_counts,
            float(each.grouping.sizes.mean()),
            float(each.grouping.cov.mean()),
            each.overhead_s,
        )
        for each in found
    ]
    plots.plot(rules, path, loaded.scenario.name)
