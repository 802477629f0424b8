"""The ``hfl`` command. The only module that imports from every room; what it does itself is talk to the user.

Exit codes: 0 done, 1 a run failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import re
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from emulator import __version__, listing, scenario
from emulator.errors import HflError, InputError, suggestion
from emulator.files import write_text
from emulator.scenario import Loaded

app = typer.Typer(
    name="hfl", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True, rich_markup_mode="rich",
    help="Emulates hierarchical federated learning: real training on an emulated clock.",
)  # fmt: skip
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

AXES = ("cost", "time", "bytes", "round")

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a bundled scenario.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario, e.g. stop.rounds=20. Repeatable."),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", metavar="MODULE", help="Import a module (or a .py file) that registers plug-ins. Repeatable."
    ),
]


def main() -> None:
    """Runs the command line; turns our errors into messages and exit codes."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except HflError as error:
        err.print(f"[red]error:[/] {escape(str(error))}", style=None)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"hfl-emulator {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    name: ScenarioArgument,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run folder. [default: runs/NAME-SEED]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.")] = None,
    changes: SetOption = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="PRESET", help="Also run this preset in the same world and compare. Repeatable."),
    ] = None,
    memo_path: Annotated[
        Path | None,
        typer.Option(
            "--memo", metavar="FILE", help="Where results are remembered. [default: in the user's cache folder]"
        ),
    ] = None,
    no_memo: Annotated[bool, typer.Option("--no-memo", help="Remember nothing beyond this command.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the same folder.")] = False,
    plugins: PluginOption = None,
) -> None:
    """Run a scenario and write a run folder."""
    _import_plugins(plugins)
    changes = [*(changes or []), *([f"seed={seed}"] if seed is not None else [])]
    loaded = scenario.load(name, changes)
    from emulator.learning.memo import Memo, default_path
    from emulator.run import label_of

    others = against if against else list(loaded.scenario.output.against)
    folder = out_dir or Path("runs") / f"{_slug(loaded.scenario.name)}-{loaded.scenario.seed}"
    every = [loaded, *(_against(loaded, preset) for preset in others)]
    folders = [folder / _slug(label_of(each.scenario)) for each in every] if others else [folder]
    if len(set(folders)) < len(folders):
        raise InputError("the same method stands twice; --against must name other presets than the scenario's own")
    memo = Memo(None if no_memo else memo_path or default_path())
    for each, place in zip(every, folders, strict=True):
        _run_one(each, place, memo, overwrite)
    if others:
        _compare(folders, None, ",".join(AXES), folder)


@app.command()
def validate(name: ScenarioArgument, changes: SetOption = None, plugins: PluginOption = None) -> None:
    """Check a scenario and say what it describes, without running it."""
    _import_plugins(plugins)
    loaded = scenario.load(name, changes or ())
    s = loaded.scenario
    method = s.method.params.preset or s.method.kind
    out.print(
        f"{escape(loaded.document.file)}: valid: '{escape(s.name)}', {method} with {s.model.kind} on {s.data.set.kind}, "
        f"{s.topology.clients} clients, {s.topology.edges} edges, seed {s.seed}"
    )


@app.command()
def schema(
    file: Annotated[Path | None, typer.Argument(help="Write it here instead of printing it.")] = None,
    plugins: PluginOption = None,
) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    _import_plugins(plugins)
    from emulator.scenario.json_schema import json_schema

    text = json.dumps(json_schema(), indent=2) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        write_text(file, text)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    target: Annotated[
        float | None, typer.Option(help="Accuracy (a share) to reach. [default: the highest that all runs reach]")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="AXES", help="What accuracy is drawn against: any of cost,time,bytes,round.")
    ] = ",".join(AXES),
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write comparison.csv and comparison.png here.")
    ] = None,
) -> None:
    """Compare runs: what each pays to reach an accuracy, and what it reaches on equal budgets."""
    _compare(folders, target, by, out_dir)


@app.command("list")
def list_(
    category: Annotated[str | None, typer.Argument(help="What to list: " + ", ".join(listing.CATEGORIES) + ".")] = None,
    plugins: PluginOption = None,
) -> None:
    """List what there is to choose from."""
    _import_plugins(plugins)
    if category is None:
        table = _table("list", "names")
        for each in listing.CATEGORIES:
            table.add_row(each, ", ".join(name for name, _, _ in listing.entries(each)))
    else:
        table = _table("name", "what it is", "parameters")
        for row in listing.entries(category):
            table.add_row(*(escape(cell) for cell in row))
    out.print(table)


@app.command()
def init(file: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Write a commented scenario to start from."""
    if file.exists():
        raise InputError(f"{file} exists already")
    text = scenario.bundled()["quickstart"].read_text(encoding="utf-8")
    write_text(file, re.sub(r"^name: .*$", f"name: {_slug(file.stem)}", text, count=1, flags=re.MULTILINE))
    out.print(f"wrote {escape(str(file))}; run it with: hfl run {escape(str(file))}")


def _run_one(loaded: Loaded, folder: Path, memo: Any, overwrite: bool) -> None:
    from emulator.progress import RunProgress
    from emulator.run import execute, label_of, prepare

    label = label_of(loaded.scenario)
    if not prepare(folder, loaded.scenario, overwrite):
        out.print(f"{label}: {escape(str(folder))} holds this run already, complete")
        return
    with RunProgress(err, label, loaded.scenario.stop) as progress:
        try:
            summary = execute(loaded, folder, memo, progress.watcher)
        except KeyboardInterrupt:
            err.print(f"{label}: interrupted; what was done is in {escape(str(folder))}")
            raise
    if loaded.scenario.output.plot:
        from analysis.plots import cost_accuracy
        from analysis.runs import load_run

        cost_accuracy.plot([load_run(folder)], axes=AXES, path=folder / "accuracy.png")
    final = summary["final"]
    from analysis.quantities import bytes_text, cost_text, time_text

    charged = f"{time_text(final['time_s'])} emulated, {bytes_text(final['bytes_total'])}, {cost_text(final['cost_s'])}"
    reached = f"accuracy {final['accuracy']:.1%} after {summary['rounds']} rounds (stopped by {summary['stopped_by']})"
    out.print(f"{label}: {reached}, {charged} -> {escape(str(folder))}")


def _compare(folders: list[Path], target: float | None, by: str, out_dir: Path | None) -> None:
    from analysis import tables
    from analysis.plots import cost_accuracy
    from analysis.runs import load_runs

    axes = [a.strip() for a in by.split(",")]
    for axis in axes:
        if axis not in AXES:
            raise InputError(f"unknown axis '{axis}'; {suggestion(axis, AXES)}")
    if target is not None and not 0 < target <= 1:
        raise InputError(f"--target is a share between 0 and 1, for example 0.85, not {target:g}")
    runs = load_runs(folders)
    comparison = tables.compare(runs, target)
    out.print(tables.as_text(comparison), markup=False)
    if out_dir is not None:
        write_text(out_dir / "comparison.csv", tables.as_csv(comparison))
        cost_accuracy.plot(runs, axes=tuple(axes), path=out_dir / "comparison.png")
        out.print(f"wrote {escape(str(out_dir / 'comparison.csv'))} and {escape(str(out_dir / 'comparison.png'))}")


def _against(loaded: Loaded, preset: str) -> Loaded:
    known = [name for name, _, _ in listing.entries("presets")]
    if preset not in known:
        raise InputError(f"--against: unknown preset '{preset}'; {suggestion(preset, known)}")
    return loaded.against(preset)


def _import_plugins(names: list[str] | None) -> None:
    """Imports modules by name, or files by path; raises `InputError` where that fails."""
    sys.path.insert(0, str(Path.cwd()))
    for name in names or ():
        try:
            if name.endswith(".py"):
                spec = importlib.util.spec_from_file_location(Path(name).stem, name)
                if spec is None or spec.loader is None:
                    raise ImportError(f"{name} is no Python file")
                module = importlib.util.module_from_spec(spec)
                sys.modules[spec.name] = module
                spec.loader.exec_module(module)
            else:
                importlib.import_module(name)
        except Exception as error:
            raise InputError(f"--plugin {name}: {type(error).__name__}: {error}") from error


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.+_]+", "-", text.lower()).strip("-") or "run"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "list"))
    return table


if __name__ == "__main__":
    main()
