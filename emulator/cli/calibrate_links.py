"""``hfl calibrate links``: a real path measured, as the links of a scenario."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from devices import path_probe
from emulator import yamlfile
from emulator.cli.app import err, out
from emulator.cli.calibrate import OverwriteOption, commands
from emulator.errors import InputError
from emulator.files import write_text
from emulator.units import RATE, SIZE, TIME

if TYPE_CHECKING:
    from devices.path_probe import Path as Measured
    from devices.path_probe import Rate

LITTLE = 0.05  # a share of the latency; a jitter below is left out
MOST = "2 GB"


@commands.command()
def links(
    host: Annotated[str | None, typer.Argument(metavar="[HOST]", help="Where the other end serves.")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Be the other end: let others measure the path to here.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The TCP port. With --serve, 0 takes any.")
    ] = path_probe.PORT,
    address: Annotated[
        str, typer.Option(metavar="ADDR", help="With --serve: the address to listen at. (default: all of this host)")
    ] = "",
    minutes: Annotated[float, typer.Option(min=0.01, max=10_000, help="With --serve: for how long.")] = 60.0,
    seconds: Annotated[float, typer.Option(min=1, max=90, help="About how long to measure.")] = 10.0,
    most: Annotated[
        str, typer.Option(metavar="SIZE", help=f"The most to send in both directions; at most {MOST}.")
    ] = "100 MB",
    kind: Annotated[
        Literal["access", "backhaul"], typer.Option(help="Which links of a scenario these are.")
    ] = "access",
    file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the YAML here, for --set @FILE. (default: print it)"),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Measure the path to another host, where 'hfl calibrate links --serve' runs: its latency, jitter and bandwidth."""
    if serve == (host is not None):
        raise InputError("give the host at the other end, or --serve to be the other end")
    if host is None:
        _serve(port, address, minutes)
        return
    if file is not None and file.suffix not in (".yaml", ".yml"):
        raise InputError(f"--out must end in .yaml, not '{file.name}'")
    if file is not None and file.exists() and not overwrite:
        raise InputError(f"{file} exists already; name another file with --out, or say --overwrite")
    try:
        most_bytes = SIZE.parse(most)
    except ValueError as error:
        raise InputError(f"--most: {error}") from None
    if not 100_000 <= most_bytes <= path_probe.SESSION_BYTES:
        raise InputError(f"--most must be between 100 kB and {MOST}, not {most}")
    err.print(f"measuring the path to {escape(host)}:{port} for about {seconds:g} s")
    found = path_probe.measure(host, port, seconds, int(most_bytes))
    text = as_yaml(found, kind, f"{host}:{port}")
    if file is None:
        out.print(text.rstrip(), markup=False)
    else:
        write_text(file, text)
        out.print(text.rstrip(), markup=False)
        out.print(f"wrote {escape(str(file))}; use it: hfl run SCENARIO --set @{escape(str(file))}")


def _serve(port: int, address: str, minutes: float) -> None:
    def ready(taken: int) -> None:
        err.print(
            f"serving on port {taken} for {minutes:g} min; at the other end: hfl calibrate links THIS-HOST --port {taken}"
        )

    path_probe.serve(port, address, 60 * minutes, ready, lambda line: err.print(line, markup=False))


def as_yaml(found: Measured, kind: str, where: str) -> str:
    """What was measured as the links of a scenario. Bandwidths are those on the wire: what was sent, and its headers."""
    from emulator.world.transports import TcpParams

    tcp = TcpParams()
    headers = tcp.frame / tcp.payload
    link: dict[str, Any] = {
        "up": _rate(found.up.bps * headers), "down": _rate(found.down.bps * headers), "latency": _time(found.latency_s),
    }  # fmt: skip
    if found.jitter_s > LITTLE * found.latency_s:
        link["jitter"] = {"kind": "exponential", "scale": _time(found.jitter_s)}
    trips = sorted(found.trips_s)
    lines = (
        f"Measured to {where} with 'hfl calibrate links', {found.sent_bytes:,} bytes; up is towards it.",
        f"up: {_spread(found.up)}; down: {_spread(found.down)}. Both with {headers - 1:.1%} of headers, as 'tcp' counts them.",
        f"latency: half of the shortest of {len(trips)} round trips; their median {_time(trips[len(trips) // 2])}, the longest "
        f"{_time(trips[-1])}.",
    )
    return "".join(f"# {line}\n" for line in lines) + yamlfile.dump({"topology": {"links": {kind: link}}})


def _spread(rate: Rate) -> str:
    about = "unknown" if math.isnan(rate.spread) else f"{rate.spread:.3g}"
    return f"median of {rate.repeats}, relative standard deviation {about}"


def _rate(bps: float) -> str:
    unit = next((u for u in ("Gbit/s", "Mbit/s", "kbit/s") if bps >= RATE.units[u]), "bit/s")
    return f"{bps / RATE.units[unit]:.4g} {unit}"


def _time(seconds: float) -> str:
    unit = next((u for u in ("s", "ms", "us") if seconds >= TIME.units[u]), "ns")
    return f"{seconds / TIME.units[unit]:.4g} {unit}"


__all__ = ["as_yaml", "links"]
