"""The command that runs apps of Flower: flower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from emulator.cli.app import AXES, PluginOption, SetOption, WorkersOption, app, err, import_plugins, out
from emulator.errors import InputError, ScenarioError
from emulator.scenario.load import read
from emulator.units import SIZE, TIME, Dimension

if TYPE_CHECKING:
    from emulator.flower.app import App
    from emulator.flower.replies import Replies
    from emulator.flower.setting import FlowerScenario

AppArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="APP", help="The folder of a Flower app; or its ServerApp and its ClientApp, as MODULE:OBJECT each."
    ),
]


@app.command()
def flower(
    words: AppArgument,
    world: Annotated[
        str,
        typer.Option(
            metavar="SCENARIO", help="Fleet, links, devices, faults, stop: a scenario file, or a bundled scenario."
        ),
    ],
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run folder. (default: runs/APP-WORLD-SEED)")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.")] = None,
    changes: SetOption = None,
    run_config: Annotated[
        list[str] | None,
        typer.Option(
            "--run-config", metavar="KEY=VALUE", help="Change a key of the app's run configuration. Repeatable."
        ),
    ] = None,
    client_time: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="What clients' computing takes: flops (counted), samples[:RATE] a second, host:FACTOR, or none.",
        ),
    ] = "flops",
    server_time: Annotated[
        str, typer.Option(metavar="HOW", help="What servers' computing takes: none, flops (counted), or host:FACTOR.")
    ] = "none",
    edges: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="relay: edges pass messages on; fedavg or MODULE:OBJECT: a strategy by which they aggregate.",
        ),
    ] = "relay",
    edge_timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long an aggregating edge waits for its clients, such as '5 min'."),
    ] = None,
    accuracy: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="The app's metric that stands as the accuracy. (default: one named so)"),
    ] = None,
    report_errors: Annotated[
        bool,
        typer.Option(
            "--report-errors", help="Give a client's error to the app as its reply, in place of ending the run."
        ),
    ] = False,
    replies: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where replies are remembered. (default: in the user's cache folder)"),
    ] = None,
    replies_size: Annotated[str, typer.Option(metavar="BYTES", help="How much room they may take.")] = "4 GB",
    no_replies: Annotated[bool, typer.Option("--no-replies", help="Remember no replies.")] = False,
    patience: Annotated[
        str,
        typer.Option(metavar="TIME", help="Real time after which code of the app that does not return fails the run."),
    ] = "1 h",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the same folder.")] = False,
    workers: WorkersOption = None,
    plugin: PluginOption = None,
) -> None:
    """Run an unchanged Flower app in the world of a scenario, and write a run folder."""
    from emulator.flower import support

    support.check()
    import_plugins(plugin)
    from emulator.flower.app import find_app
    from emulator.flower.replies import Replies, default_folder
    from emulator.flower.results import ready
    from emulator.flower.setting import setting_of

    found = find_app(words, run_config or [])
    document = read(world, [*(changes or []), *([f"seed={seed}"] if seed is not None else [])])
    how: dict[str, Any] = {"client_time": client_time, "server_time": server_time, "edges": edges, "accuracy": accuracy}
    how |= {"errors": "report" if report_errors else "fail"}
    how |= {"edge_timeout_s": None if edge_timeout is None else _quantity("--edge-timeout", edge_timeout, TIME)}
    scenario = setting_of(document, found, how)
    folder = out_dir or Path("runs") / f"{found.name}-{scenario.name}-{scenario.seed}"
    patience_s = _quantity("--patience", patience, TIME)
    store = Replies(
        None if no_replies else replies or default_folder(), int(_quantity("--replies-size", replies_size, SIZE))
    )
    if not ready(folder, scenario, overwrite):
        out.print(f"{scenario.label}: {escape(str(folder))} holds this run already, complete")
        return
    try:
        summary = _run(scenario, found, folder, store, workers, patience_s)
    except InputError as error:
        if isinstance(error, ScenarioError) or not error.key:
            raise
        raise ScenarioError((document.problem(tuple(error.key.split(".")), error.message),)) from error
    _tell(scenario.label, summary, folder)
    _draw(scenario, folder)


def _quantity(option: str, text: str, dimension: Dimension) -> float:
    """A quantity above 0. Raises `InputError` that names the option."""
    try:
        value = dimension.parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
    if not value > 0:
        raise InputError(f"{option}: {text} is not above 0")
    return value


def _run(
    scenario: FlowerScenario, found: App, folder: Path, store: Replies, workers: int | None, patience_s: float
) -> dict[str, Any]:
    """Runs an app and shows how it gets on."""
    from emulator.cli.progress import RunProgress
    from emulator.flower.run import How, execute
    from emulator.scenario.schema import Stop

    with RunProgress(err, scenario.label, scenario.stop or Stop(rounds=10**8)) as progress:
        try:
            return execute(scenario, found, folder, How(store, workers, patience_s, progress.watcher.on_round))
        except KeyboardInterrupt:
            err.print(f"{scenario.label}: interrupted; the same command goes on from {escape(str(folder))}")
            raise typer.Exit(130) from None


def _tell(label: str, summary: dict[str, Any], folder: Path) -> None:
    from analysis.quantities import bytes_text, cost_text, time_text
    from emulator.measures import ACCURACY

    final, counts = summary["final"], summary["replies"]
    if final is None:
        out.print(f"{label}: the app ended before its first round -> {escape(str(folder))}")
        return
    charged = f"{time_text(final['time_s'])} emulated, {bytes_text(final['bytes_total'])}, {cost_text(final['cost_s'])}"
    learned = "no accuracy reported" if final["accuracy"] is None else f"accuracy {ACCURACY.brief(final['accuracy'])}"
    reached = f"{learned} after {summary['rounds']} rounds (stopped by {summary['stopped_by']})"
    out.print(f"{label}: {reached}, {charged} -> {escape(str(folder))}")
    known = f"{counts['remembered']} of {counts['run'] + counts['remembered']} replies were remembered"
    out.print(f"client code ran {counts['run'] + counts['second_tries']} times; {known}")
    if not counts["deterministic"]:
        err.print(f"{label}: the app is not deterministic, so that none of its replies is remembered")


def _draw(scenario: FlowerScenario, folder: Path) -> None:
    from emulator.measures import ACCURACY

    picture = folder / ACCURACY.picture
    if not scenario.output.plot or picture.exists():
        return
    from analysis.plots import cost_accuracy
    from analysis.runs import load_run

    run = load_run(folder)
    if run.judged.notna().any():
        cost_accuracy.plot([run], axes=AXES, path=picture)
