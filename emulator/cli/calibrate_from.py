"""``hfl calibrate from``: a world fitted to measured seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from emulator.cli.app import MemoOption, NoMemoOption, PluginOption, SetOption, err, import_plugins, out
from emulator.cli.calibrate import commands
from emulator.errors import InputError
from emulator.files import write_text

if TYPE_CHECKING:
    from emulator.fitting.fits import Fit

HELD_OUT = "held-out.csv"
SHOWN = 12  # links in a table


@commands.command("from")
def from_(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|FILE", help="A measured run folder, or a file (CSV, YAML, Parquet) of timings."),
    ],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the fitted files go.")] = Path("fitted"),
    scenario: Annotated[
        str | None, typer.Option(metavar="SCENARIO", help="Of a file: the scenario that was deployed.")
    ] = None,
    changes: SetOption = None,
    by: Annotated[
        Literal["client", "kind"],
        typer.Option(help="Fit each client's speed and link, or take those of a kind of device to be alike."),
    ] = "client",
    parts: Annotated[
        int, typer.Option("--parts", min=0, max=50, help="Leave rounds out in so many parts and predict them; 0: not.")
    ] = 3,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files if there are some.")] = False,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    plugin: PluginOption = None,
) -> None:
    """Fit devices, links and group operations to a measured run or to timings, and predict rounds left out of the fit."""
    import_plugins(plugin)
    if folder.exists() and not overwrite:
        raise InputError(f"{folder} exists already; name another folder with --out, or say --overwrite")
    if parts == 1:
        raise InputError("--parts: rounds are left out in at least 2 parts; 0 leaves none out")
    from emulator.fitting import files, held_out, timings
    from emulator.fitting.base import base_of
    from emulator.fitting.fits import fit
    from emulator.learning.memo import Memo, default_path
    from emulator.scenario import load

    kept = Memo(None if no_memo else memo or default_path())
    if source.is_dir():
        if scenario is not None:
            raise InputError("--scenario goes with a file of timings; a run folder has its own")
        from analysis import activity
        from analysis.runs import load_run

        run = load_run(source)
        base = base_of(load(source / "scenario.yaml", changes or []), kept)
        measured = timings.from_ledger(run.ledger, base.clients)
        spans = activity.round_spans(run)
        lasted = spans["end_s"] - spans["start_s"]
        rounds = int((lasted.index > 0).sum())
        said = f"the {'measured' if run.manifest.get('clock') == 'measured' else 'emulated'} run '{run.folder.resolve().name}'"
    else:
        if not source.exists():
            raise InputError(f"there is no folder and no file '{source}'")
        if scenario is None:
            raise InputError(f"'{source}' is no run folder; of a file of timings, say which scenario with --scenario")
        base = base_of(load(scenario, changes or []), kept)
        measured = timings.from_file(source, base.clients)
        by_round = measured.assign(end_s=measured["start_s"] + measured["seconds"]).groupby("round")
        lasted = by_round["end_s"].max() - by_round["start_s"].min()
        rounds = int((lasted.index > 0).sum())
        said = f"the timings in {source.name}"
    timings.check_enough(measured, source)
    fitted = fit(base, measured, by == "client")
    if not fitted.found:
        raise InputError(f"{source} tells nothing of devices or links:\n" + "\n".join(fitted.notes))
    found = held_out.validate(base, measured, lasted, parts, by == "client", kept, err.print) if parts else None
    written = files.write(fitted, folder, f"{said} ({rounds} rounds, {len(measured)} activities)")
    _show(fitted)
    if source.is_dir() and (count := timings.steps(run.ledger)) > 1:
        err.print(
            f"note: group operations come in {count:.3g} steps. Their seconds are fitted as one; of the messages between them "
            "the emulator sends one each way, so whole rounds are predicted to be shorter by the others",
            markup=False,
        )
    for note in fitted.notes:
        err.print(f"note: {note}", markup=False)
    if found is not None:
        made = found.printed()
        write_text(folder / HELD_OUT, made.csv())
        out.print("\n" + made.text(), markup=False)
        if found.unknown:
            err.print(f"whole rounds were not predicted: {found.unknown}", markup=False)
    elif parts:
        err.print("no rounds were left out: it takes at least two")
    out.print(f"wrote {', '.join(escape(str(path)) for path in written)}")
    out.print(f"use it: hfl run SCENARIO --set @{escape(str(written[0]))}")


def _show(fitted: Fit) -> None:
    """What was found, as two tables."""
    from analysis.texttable import TextTable
    from emulator.fitting.files import quantity
    from emulator.units import RATE, SPEED, TIME

    rows = tuple(
        (
            kind, quantity(SPEED, each.profile.effective_speed), quantity(TIME, each.profile.batch_overhead),
            f"{min(each.speeds.values()):.3g} to {max(each.speeds.values()):.3g}", f"{each.trainings:,}",
            f"{100 * each.deviation:.2g} %", each.curve or f"times {each.group_factor:.3g}" if each.group_operations else "–",
        )
        for kind, each in fitted.devices.items()
    )  # fmt: skip
    header = ("kind", "speed", "overhead of a batch", "clients' speeds", "trainings", "off by", "group operations")
    out.print(TextTable("Devices", header, rows, (False, *(True for _ in header[1:]))).text() + "\n", markup=False)
    links = [*fitted.links.items(), *([] if fitted.backhaul is None else [("edges to the cloud", fitted.backhaul)])]
    shown = links if len(links) <= SHOWN else [*links[: SHOWN - 1], links[-1]]
    cells = tuple(
        (
            name, quantity(RATE, link.up_bps), quantity(RATE, link.down_bps), quantity(TIME, link.latency_s),
            f"{link.transfers:,}", f"{100 * link.deviation:.2g} %",
        )
        for name, link in shown
    )  # fmt: skip
    columns = ("link", "up", "down", "latency", "transfers", "off by")
    left = f" ({len(shown)} of {len(links)})" if len(shown) < len(links) else ""
    out.print(TextTable(f"Links{left}", columns, cells, (False, *(True for _ in columns[1:]))).text(), markup=False)


__all__ = ["from_"]
