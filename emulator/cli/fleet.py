"""The command about who takes part: fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from emulator import scenario
from emulator.cli.app import PluginOption, ScenarioArgument, SetOption, app, import_plugins, out
from emulator.errors import InputError
from emulator.files import write_text
from emulator.scenario.fleet_table import write_table
from emulator.scenario.load import Loaded
from emulator.scenario.roster import describe
from emulator.units import TIME

if TYPE_CHECKING:
    from analysis.fleets import Columns, FleetTables

CLIENTS, SERVERS, LINKS, SCENARIO = "clients.csv", "servers.csv", "links.csv", "scenario.yaml"


@app.command()
def fleet(
    name: ScenarioArgument,
    changes: SetOption = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows of each table to show; 0 shows all.")] = 20,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FOLDER",
            help="Write clients.csv, servers.csv, links.csv and a scenario.yaml that reads them to the very same run.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the fleet as a tree (PNG, SVG or PDF).")
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Show who takes part: every server and client of a scenario, with its device and its links, and who moves where."""
    import_plugins(plugin)
    from analysis.fleets import FleetTables
    from emulator.world.fleet import Fleet
    from emulator.world.fleet_columns import SHOWN_S, tables, unwritable
    from emulator.world.movements import movements

    loaded = scenario.load(name, scenario.sharing(name, changes or (), training=False), training=False)
    topology = loaded.scenario.topology
    with loaded.locating():
        resolved, moving = Fleet(topology, loaded.scenario.seed), movements(topology, loaded.scenario.seed)
    shown = FleetTables(**tables(resolved, moving))
    out.print(f"{escape(loaded.document.file)}: {describe(topology)}, seed {loaded.scenario.seed}")
    if shown.servers:
        _show("servers", shown.servers, rows)
    if shown.links:
        _show("links beside the tree", shown.links, rows)
    _show("clients", shown.clients, rows)
    if shown.moves:
        _show(f"moves until {TIME.format(SHOWN_S)}", shown.moves, rows)
    if plot is not None:
        from analysis.plots.fleet import plot as draw

        draw(shown, plot, loaded.scenario.name)
        out.print(f"drawn: {escape(str(plot))}")
    if csv is not None:
        hindrance = unwritable(resolved)
        if hindrance:
            raise InputError(f"--csv: {hindrance}")
        _write(loaded, csv, shown)
        out.print(f"written: {escape(str(csv / CLIENTS))}, and a scenario that reads it: {escape(str(csv / SCENARIO))}")


def _show(title: str, columns: Columns, most: int) -> None:
    from analysis.texttable import TextTable

    total = len(next(iter(columns.values())))
    shown = total if most == 0 else min(most, total)
    heading = title if shown == total else f"{title}, the first {shown} of {total}"
    texts = list(zip(*columns.values(), strict=True))[:shown]
    out.print(TextTable(heading, tuple(columns), tuple(texts), (False,) * len(columns)).text(), markup=False)


def _write(loaded: Loaded, folder: Path, shown: FleetTables) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--csv: '{folder}' cannot be made: {error.strerror}") from None
    write_table(folder / CLIENTS, shown.clients)
    plain: dict[str, Any] = {"clients": None, "total": None, "fleet": str(folder / CLIENTS)}
    if shown.servers:
        write_table(folder / SERVERS, shown.servers)
        plain |= {"edges": None, "tiers": None, "servers": str(folder / SERVERS)}
    if shown.links:
        write_table(folder / LINKS, shown.links)
        links = loaded.scenario.topology.links
        plain["links"] = links.model_copy(update={"direct": str(folder / LINKS)})
    same = loaded.scenario.model_copy(update={"topology": loaded.scenario.topology.model_copy(update=plain)})
    write_text(folder / SCENARIO, scenario.dump(same))
