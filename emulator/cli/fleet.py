"""The command about who takes part: fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from emulator import scenario
from emulator.cli.app import PluginOption, ScenarioArgument, SetOption, app, import_plugins, out
from emulator.errors import InputError
from emulator.files import write_text
from emulator.scenario.fleet_table import write_table
from emulator.scenario.load import Loaded
from emulator.scenario.roster import describe

CLIENTS, SERVERS, SCENARIO = "clients.csv", "servers.csv", "scenario.yaml"


@app.command()
def fleet(
    name: ScenarioArgument,
    changes: SetOption = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Clients to show; 0 shows all.")] = 20,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FOLDER",
            help="Write clients.csv, servers.csv and a scenario.yaml that reads them to the very same run.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the fleet as a tree (PNG, SVG or PDF).")
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Show who takes part: every server and client of a scenario, with its device and its links."""
    import_plugins(plugin)
    from emulator.world.fleet import Fleet
    from emulator.world.fleet_columns import client_columns, server_columns, unwritable

    loaded = scenario.load(name, scenario.sharing(name, changes or (), training=False), training=False)
    topology = loaded.scenario.topology
    with loaded.locating():
        resolved = Fleet(topology, loaded.scenario.seed)
    clients, servers = client_columns(resolved), server_columns(resolved)
    out.print(f"{escape(loaded.document.file)}: {describe(topology)}, seed {loaded.scenario.seed}")
    if servers:
        _show("servers", servers, rows)
    _show("clients", clients, rows)
    if plot is not None:
        from analysis.plots.fleet import plot as draw

        draw(clients, servers, plot, loaded.scenario.name)
        out.print(f"drawn: {escape(str(plot))}")
    if csv is not None:
        hindrance = unwritable(resolved)
        if hindrance:
            raise InputError(f"--csv: {hindrance}")
        _write(loaded, csv, clients, servers)
        out.print(f"written: {escape(str(csv / CLIENTS))}, and a scenario that reads it: {escape(str(csv / SCENARIO))}")


def _show(title: str, columns: dict[str, list[str]], most: int) -> None:
    from analysis.texttable import TextTable

    total = len(columns["name"])
    shown = total if most == 0 else min(most, total)
    heading = title if shown == total else f"{title}, the first {shown} of {total}"
    texts = list(zip(*columns.values(), strict=True))[:shown]
    out.print(TextTable(heading, tuple(columns), tuple(texts), (False,) * len(columns)).text(), markup=False)


def _write(loaded: Loaded, folder: Path, clients: dict[str, list[str]], servers: dict[str, list[str]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--csv: '{folder}' cannot be made: {error.strerror}") from None
    write_table(folder / CLIENTS, clients)
    plain: dict[str, Any] = {"clients": None, "total": None, "fleet": str(folder / CLIENTS)}
    if servers:
        write_table(folder / SERVERS, servers)
        plain |= {"edges": None, "tiers": None, "servers": str(folder / SERVERS)}
    same = loaded.scenario.model_copy(update={"topology": loaded.scenario.topology.model_copy(update=plain)})
    write_text(folder / SCENARIO, scenario.dump(same))
