"""``hfl calibrate``: device profiles and constants of secure aggregation from measurements on this host."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.markup import escape
from rich.table import Table

from devices import backdoor_detection, secure_aggregation
from devices.calibration import (
    SHORTER,
    Misses,
    Timing,
    curve_data,
    fit_curve,
    fit_speed,
    host_cpu,
    host_memory_bytes,
    profile_text,
    time_pair,
    time_training,
    times_data,
)
from devices.profile import Curve, Power, find_profile
from emulator import yamlfile
from emulator.cli.app import PluginOption, app, err, import_plugins, out
from emulator.errors import InputError
from emulator.files import write_text
from emulator.learning.calibrating import DEPTHWISE_PROBE, parameters_of, trainable
from emulator.units import POWER

if TYPE_CHECKING:
    from devices.secagg.measurement import Measured
    from devices.secagg.steps import Adversary

commands = typer.Typer(
    no_args_is_help=True,
    help="Measure this host or a path, or fit to a measured run; write profiles, constants or links.",
)
app.add_typer(commands, name="calibrate")

MODELS = ("lenet5", "cnn-mnist", "resnet-3block")  # dense networks, from little to much arithmetic
KINDS = (DEPTHWISE_PROBE, "char-lstm", "char-gru")  # networks of other kinds of layers
BATCH_SIZES = (8, 32, 128)
SIZES = (2, 4, 8, 16)
QUICK_SIZES = (2, 4, 6, 8)
FAR_OFF = 0.25

OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Measure less: a few seconds, and rougher figures.")]
Watts = Annotated[float | None, typer.Option(metavar="W", min=0, help="What the whole device draws in this state.")]


@commands.command()
def device(
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="M", help=f"A model to train (default: {', '.join((*MODELS, *KINDS))}). Repeatable."),
    ] = None,
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The profile to write.")] = Path(
        "this-device.yaml"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the profile (default: the processor).")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that train (default: one a core).")] = None,
    power_of: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Take the power that is not given from this profile.")
    ] = None,
    idle_watts: Watts = None,
    compute_watts: Watts = None,
    send_watts: Watts = None,
    receive_watts: Watts = None,
    slowdown: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Take group operations from the published measurements, for a core X times slower, instead of measuring.",
        ),
    ] = None,
    core_slowdown: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="A core against the one that constants of secure aggregation are of: 1 for constants measured on this host. "
            "(default: what --slowdown says)",
        ),
    ] = None,
    quick: QuickOption = False,
    overwrite: OverwriteOption = False,
    plugin: PluginOption = None,
) -> None:
    """Train models on this host, fit its speed by kind of layer, and write a device profile."""
    import_plugins(plugin)
    _free(file, overwrite)
    if slowdown is not None:
        _check_slowdown(slowdown)
    if core_slowdown is not None:
        _check_slowdown(core_slowdown, "--core-slowdown")
    power, power_source = _power(
        {"idle": idle_watts, "compute": compute_watts, "send": send_watts, "receive": receive_watts}, power_of
    )
    names = tuple(model) if model else (*(MODELS[:2] if quick else MODELS), *KINDS)
    sizes = BATCH_SIZES[:2] if quick else BATCH_SIZES
    trained, torch_version, used = _time_models(names, sizes, threads, span_s=0.05 if quick else 0.5)
    speed = fit_speed([timing for _, _, timing in trained])
    table = _table("model", "batch", "samples/s", "by the fit")
    for name, batch, timing in trained:
        samples = timing.batches * batch
        table.add_row(
            escape(name),
            str(batch),
            f"{samples / timing.seconds:,.1f}",
            f"{samples / speed.seconds(timing.flops, timing.batches, timing.by_kind):,.1f}",
        )
    curves, curves_source = _group_operations(speed.effective_speed, slowdown, quick)
    on_threads = f"{used} thread" if used == 1 else f"{used} threads"
    source = (
        f"Speed: measured on {host_cpu()} with PyTorch {torch_version} on {on_threads}: training of {', '.join(names)} on "
        f"made-up samples in batches of {_listed(sizes)}. The fit minimises relative errors; it is off by {speed.misses}."
        f"\n\n{power_source}\n\n{curves_source}"
    )
    core = core_slowdown or slowdown
    write_text(file, profile_text(title or host_cpu(), source, speed, power, curves, host_memory_bytes(), core))
    out.print(table)
    shares = "".join(f", {kind} layers {share:.3g} of that speed" for kind, share in speed.efficiency.items())
    out.print(
        f"{speed.effective_speed / 1e9:.4g} GFLOP/s and {speed.batch_overhead_s * 1e3:.4g} ms a batch{shares}, off by "
        f"{speed.misses}"
    )
    _doubt(speed.misses)
    out.print(f"wrote {escape(str(file))}; name it in a scenario as the device")


@commands.command("secure-aggregation")
def secure_aggregation_(
    sizes: Annotated[str, typer.Option(metavar="N,...", help="Sizes of the groups.")] = ",".join(map(str, SIZES)),
    parameters: Annotated[
        int, typer.Option(min=1, max=100_000_000, help="Numbers in a vector.")
    ] = secure_aggregation.REFERENCE_PARAMETERS,
    dropout: Annotated[
        float, typer.Option(help="Share of members that drop out after sharing their keys.")
    ] = secure_aggregation.REFERENCE_DROPOUT,
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The constants to write.")] = Path(
        "secure-aggregation.yaml"
    ),
    slowdown: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="Write the seconds of the reference Xeon's core, of which one core here is X times slower (below 1: faster).",
        ),
    ] = 1.0,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Runs of each group, of which the shortest counts (default: 5, or 2).")
    ] = None,
    quick: QuickOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Run secure aggregation on this host for several sizes of group, and fit what it costs."""
    _free(file, overwrite)
    groups = _sizes(sizes)
    if not 0 <= dropout <= 1 / 3:
        raise InputError(f"--dropout must be between 0 and 1/3, because two thirds must be left, not {dropout:g}")
    _check_slowdown(slowdown)
    from devices.secagg.constants import MeasuredConstants
    from devices.secagg.fit import fit_constants

    runs, shorter_by = repeats or (2 if quick else 5), _shorter(parameters)
    rows = _measure(groups, parameters, dropout, runs)
    measured, found = fit_curve(groups, [row.client_s + row.server_s for row in rows])
    # Vectors of a second length tell what goes with the numbers from what goes with the clients.
    shorter = _measure(groups, shorter_by, dropout, runs)
    signed = _measure(groups, shorter_by, dropout, runs, "active")
    fitted = fit_constants([each for row in (*rows, *shorter, *signed) for each in row.observations])
    curve = curve_data(measured.faster(slowdown))
    scaled = (
        f" All were divided by {slowdown:g}, the slowdown of a core here against the Xeon of devices/secure_aggregation.py, as "
        f"given by the user."
    )
    data = {
        "title": f"Secure aggregation on {host_cpu()}",
        "source": (
            f"Measured with this project's implementation (devices/secagg), all parties in one process: groups of "
            f"{_listed(groups)}, vectors of {parameters:,} and {shorter_by:,} numbers, a share of {dropout:g} "
            f"dropping out, a threshold of two thirds; the shorter ones also against an active adversary. Times are the shortest "
            f"of {runs} runs. The constants miss a client's total time by {fitted.client} and the server's by {fitted.server}. "
            f"The curve is that of the longer vectors against a passive adversary, a member's time plus the server's; it is off "
            f"by {found.misses}.{scaled if slowdown != 1 else ''}\n\n"
            f"Command: hfl calibrate secure-aggregation --sizes {','.join(map(str, groups))} --parameters {parameters} "
            f"--dropout {dropout:g} --slowdown {slowdown:g} --repeats {runs}"
        ),
        "constants": times_data({name: seconds / slowdown for name, seconds in fitted.constants}),
        "curve": curve,
    }
    MeasuredConstants.model_validate(data)
    write_text(file, yamlfile.dump(data))
    _show_groups(rows)
    terms = ", ".join(f"{name} = {text}" for name, text in curve.items())
    out.print(f"a member of n pays a + b n + c n²: {terms}; off by {found.misses}")
    out.print(f"constants miss a client's time by {fitted.client}, the server's by {fitted.server}")
    _doubt(found.misses)
    out.print(f"wrote {escape(str(file))}")


def _free(file: Path, overwrite: bool) -> None:
    if file.suffix not in (".yaml", ".yml"):
        raise InputError(f"--out must end in .yaml, not '{file.name}'")
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists already; name another file with --out, or say --overwrite")


def _check_slowdown(slowdown: float, option: str = "--slowdown") -> None:
    if not 0 < slowdown < math.inf:
        raise InputError(f"{option} must be greater than 0, not {slowdown:g}")


def _sizes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 2 <= int(part) <= 1000 for part in parts):
        raise InputError(f"--sizes must be whole numbers from 2 to 1000, such as 2,4,8, not '{text[:60]}'")
    sizes = tuple(sorted({int(part) for part in parts}))
    if len(sizes) < 3:
        raise InputError("--sizes must name at least three sizes, because the curve has three terms")
    return sizes


def _power(given: dict[str, float | None], base: str | None) -> tuple[Power, str]:
    """The power figures, and a sentence on where they come from."""
    known = find_profile(base).power if base else None
    missing = [state for state, watts in given.items() if watts is None]
    if known is None and missing:
        options = ", ".join(f"--{state}-watts" for state in missing)
        raise InputError(f"power cannot be measured from here; give {options}, or name a profile with --power-of")
    figures = {s: POWER.format(getattr(known, s) if watts is None else watts) for s, watts in given.items()}
    try:
        power = Power.model_validate(figures)
    except ValidationError as error:
        raise InputError(f"the power does not fit together: {error.errors(include_url=False)[0]['msg']}") from None
    own = [state for state in given if state not in missing]
    parts = [f"{', '.join(own)} as given by the user"] if own else []
    parts += [f"{', '.join(missing)} taken from the profile '{base}'"] if missing else []
    return power, f"Power: not measured; {'; '.join(parts)}."


def _time_models(
    names: tuple[str, ...], batch_sizes: tuple[int, ...], threads: int | None, span_s: float
) -> tuple[list[tuple[str, int, Timing]], str, int]:
    """Timings by model and batch size, the version of torch, and the threads that were used."""
    for name in names:  # before the first is trained
        parameters_of(name)
    import torch

    before = torch.get_num_threads()
    used = threads or before
    timings = []
    torch.set_num_threads(used)
    try:
        for name in names:
            network = trainable(name, max(batch_sizes))
            for batch in batch_sizes:
                err.print(f"training {escape(name)} in batches of {batch}")
                timing = time_training(network.train, network.facts.forward_flops, batch, span_s)
                timings.append((name, batch, timing.with_kinds(network.facts.forward_flops, network.facts.by_kind)))
    finally:
        torch.set_num_threads(before)
    return timings, torch.__version__, used


def _group_operations(effective_speed: float, slowdown: float | None, quick: bool) -> tuple[dict[str, Curve], str]:
    """The curves of a profile, and a few sentences on where they come from."""
    parameters, dropout = secure_aggregation.REFERENCE_PARAMETERS, secure_aggregation.REFERENCE_DROPOUT
    setting = f"a model of {parameters:,} parameters and a share of {dropout:g} dropping out"
    if slowdown is not None:
        curves = {
            "secure-aggregation": secure_aggregation.curve(parameters, dropout, slowdown),
            "scaffold-secure-aggregation": secure_aggregation.curve(parameters, dropout, slowdown, vectors=2),
            "backdoor-detection": backdoor_detection.curve(parameters, effective_speed, slowdown),
        }
        return curves, (
            f"Group operations: slowdown {slowdown:g} of one core against the Xeon of devices/secure_aggregation.py, as given "
            f"by the user; for {setting}."
        )
    sizes = QUICK_SIZES if quick else SIZES
    curves, errors = {}, []
    for name, vectors in (("secure-aggregation", 1), ("scaffold-secure-aggregation", 2)):
        long_s, short_s = (
            [row.client_s + row.server_s for row in _measure(sizes, vectors * numbers, dropout, 2 if quick else 5)]
            for numbers in (parameters, _shorter(parameters))
        )
        curves[name], found = fit_curve(sizes, long_s, parameters, short_s)
        errors.append(found.misses)
    pair_s = time_pair(parameters, 20)
    arithmetic_s = min(pair_s, max(0.0, pair_s - time_pair(_shorter(parameters), 20)) / (1 - SHORTER))
    curves["backdoor-detection"] = backdoor_detection.of_pair(arithmetic_s, pair_s - arithmetic_s, parameters)
    return curves, (
        f"Group operations: measured, for {setting}. Secure aggregation with this project's implementation (devices/secagg), "
        f"all parties on this host, in groups of {_listed(sizes)}; the curve is off by {errors[0]}, for SCAFFOLD's two "
        f"vectors by {errors[1]}. Backdoor detection by the time of one pair. What is proportional to the model "
        f"by vectors of {_shorter(parameters):,} numbers. The bundled profiles stand on a slower implementation "
        f"of secure aggregation: to compare with them, calibrate with --slowdown."
    )


def _shorter(parameters: int) -> int:
    """A second length of vectors, to tell what goes with the numbers from what goes with the clients."""
    return max(1, round(parameters * SHORTER))


def _measure(
    sizes: tuple[int, ...], elements: int, dropout: float, repeats: int, adversary: Adversary = "passive"
) -> list[Measured]:
    from devices.secagg.measurement import measure

    def tell(clients: int, dropped: int) -> None:
        signed = ", with signatures" if adversary == "active" else ""
        err.print(f"aggregating {elements:,} numbers of {clients} clients, {dropped} dropping out{signed}")

    return list(measure(sizes, elements, dropout, repeats, tell, adversary))


def _show_groups(rows: list[Measured]) -> None:
    from analysis.quantities import bytes_text, time_text

    table = _table("size", "dropped", "client", "server", "up", "down")
    for row in rows:
        times = time_text(row.client_s), time_text(row.server_s)
        table.add_row(
            str(row.clients), f"{row.dropped:.3g}", *times, bytes_text(row.up_bytes), bytes_text(row.down_bytes)
        )
    out.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    return table


def _doubt(misses: Misses) -> None:
    if misses.mean > FAR_OFF:
        err.print("the fit is far off; measure again while the host does nothing else")


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
