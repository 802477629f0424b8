"""The command that says how sure a comparison is: certify."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from emulator import yamlfile
from emulator.cli.app import (
    AddressOption,
    BackendOption,
    MemoOption,
    NoMemoOption,
    PluginOption,
    app,
    backend_joined,
    err,
    go_on_with,
    import_plugins,
    out,
    stated_name,
)
from emulator.cluster import Backend
from emulator.errors import HflError, InputError
from emulator.scenario.load import find
from emulator.units import TIME, Amount

PLAIN_EVERY_S = 5.0


@app.command()
def certify(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|STUDY...", help="Finished runs or folders that hold some; or one study, which is run first."
        ),
    ],
    uncertain: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with a section 'uncertain'. (default: what study or scenario say)"),
    ] = None,
    worlds: Annotated[int, typer.Option(min=2, max=1_000_000, help="How many worlds are drawn.")] = 256,
    design: Annotated[
        Literal["sobol", "latin-hypercube"], typer.Option(help="How worlds fill the space of what is uncertain.")
    ] = "sobol",
    seed: Annotated[int, typer.Option(min=0, help="From what the worlds are drawn.")] = 0,
    indices: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Base points for Sobol indices, a power of 2; 0: none. (default: about as many worlds again)",
        ),
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(
            help="An accuracy to reach, as a share. Repeatable. (default: the study's, or one that all runs reach)"
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS=AMOUNT",
            help="A budget of time, bytes, cost or energy, such as time='60 s'. (default: what all spend)",
        ),
    ] = None,
    measure: Annotated[
        str,
        typer.Option(
            help="Another accuracy to judge runs by, such as accuracy_clusters. (default: the global model's)"
        ),
    ] = "",
    tipping: Annotated[bool, typer.Option(help="Whether it is searched where the winner changes.")] = True,
    train_at_most: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Train worlds that would change the learning, for at most so long, such as '2 h'."
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder. (default: 'certificate' beside the runs)")
    ] = None,
    show_world: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Print the commands that replay the runs in the world N, and do nothing else."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. (default: the number of cores)")] = None,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    backend: BackendOption = "local",
    address: AddressOption = None,
    plugin: PluginOption = None,
) -> None:
    """Replay finished runs in many worlds, drawn from what is uncertain, and say how sure their ranking is."""
    import_plugins(plugin)
    budget_s = 0.0 if train_at_most is None else _seconds(train_at_most)
    budgets = dict(_budget(text) for text in budget or ())
    from emulator.certify.certificate import Asked, Progress, Resources, commands_of
    from emulator.certify.certificate import certify as make
    from emulator.certify.gathering import gather, read_uncertain
    from emulator.learning.memo import default_path

    remembered = None if no_memo else memo or default_path()
    with backend_joined(backend, address, None):
        folders, stated, goal, beside, name = _runs_of(given, remembered, jobs, backend)
        if uncertain is not None:
            stated = read_uncertain(yamlfile.load(uncertain))
        gathered = gather(folders, stated, measure)
        folder = out_dir or beside / "certificate"
        asked = Asked(name, worlds, design, seed, indices, tuple(target or goal), budgets, tipping)
        if show_world is not None:
            for run, options in commands_of(gathered, asked, show_world):
                words = [word for option in options for word in ("--set", option)]
                out.print(shlex.join(["hfl", "whatif", str(run), *words]), markup=False)
            return
        shown = _Shown()
        try:
            said = make(
                gathered, folder, asked, Resources(jobs, backend, budget_s, remembered), Progress(shown.on_step)
            )
        except KeyboardInterrupt:
            err.print(f"interrupted; the same command goes on from {escape(str(folder))}")
            raise typer.Exit(130) from None
    _report(folder, said)


def _runs_of(
    given: Sequence[str], memo: Path | None, jobs: int | None, backend: Backend
) -> tuple[list[Path], Any, Sequence[float], Path, str]:
    """Run folders; what is uncertain about them (None: what their scenario says); targets; a folder beside them; a name."""
    from analysis.folders import run_folders
    from emulator.study.load import bundled

    if len(given) == 1 and given[0] in bundled():  # as for 'hfl study', also where a folder is called so
        return _of_study(given[0], memo, jobs, backend)
    if all(Path(each).is_dir() for each in given):
        folders = run_folders([Path(each) for each in given])
        if not folders:
            raise InputError(f"there is no run in {', '.join(given)}")
        beside = Path(given[0]) if len(given) == 1 and folders[0] != Path(given[0]) else folders[0].parent
        stated, goal = _of_study_folder(beside)
        return folders, stated, goal, beside, beside.resolve().name
    if len(given) > 1:
        missing = next(each for each in given if not Path(each).is_dir())
        raise InputError(f"'{missing}' is no folder; give finished runs, or one study by itself")
    return _of_study(given[0], memo, jobs, backend)


def _of_study_folder(folder: Path) -> tuple[Any, Sequence[float]]:
    """What the study says whose folder this is, if it is one."""
    from emulator.certify.gathering import read_uncertain
    from emulator.files import read_json
    from emulator.study.folder import INDEX

    said = read_json(folder / INDEX) if (folder / INDEX).is_file() else None
    if said is None:
        return None, ()
    section = said.get("uncertain")
    stated = (
        None if section is None else read_uncertain(yamlfile.from_data({"uncertain": section}, str(folder / INDEX)))
    )
    return stated, () if said.get("target") is None else (said["target"],)


def _of_study(
    name: str, memo: Path | None, jobs: int | None, backend: Backend
) -> tuple[list[Path], Any, Sequence[float], Path, str]:
    """Does what is left to do of a study, and gives its runs."""
    from emulator.certify.gathering import Stated
    from emulator.cli.studying import run_study
    from emulator.study.load import bundled, check
    from emulator.study.tuning import settled

    document = yamlfile.load(find(name, bundled(), "study"))
    folder = Path("studies") / stated_name(document)
    go_on_with(folder)
    loaded = check(document)
    if not loaded.runs:
        raise InputError(f"'{name}' runs nothing itself; give the folders of finished runs")
    failed = run_study(loaded, folder, memo, jobs, None, False, backend)
    if failed:
        listed = "\n".join(f"  {run}: {message}" for run, message in failed.items())
        raise HflError(f"{len(failed)} runs failed\n{listed}")
    loaded = settled(loaded, folder)
    section = loaded.study.uncertain
    stated = None if section is None else Stated(section, document)
    goals = () if loaded.study.target is None else (loaded.study.target,)
    return [folder / run.name for run in loaded.runs], stated, goals, folder, loaded.study.name


def _seconds(text: str) -> float:
    try:
        return TIME.parse(text)
    except ValueError as error:
        raise InputError(f"--train-at-most: {error}") from None


def _budget(text: str) -> tuple[str, float]:
    """``time=60 s``."""
    from emulator.certify.measuring import AXES

    axis, _, amount = text.partition("=")
    if axis.strip() not in AXES:
        raise InputError(f"--budget {text}: write AXIS=AMOUNT, where the axis is one of {', '.join(AXES)}")
    try:
        given = Amount.read(amount.strip())
    except ValueError as error:
        raise InputError(f"--budget {text}: {error}") from None
    unit = AXES[axis.strip()][1]
    if given.dimension is None or given.dimension.base != unit:
        raise InputError(f"--budget {text}: that is no amount of {axis.strip()}, which is measured in {unit}")
    if not given.value > 0:
        raise InputError(f"--budget {text}: must be greater than zero")
    return axis.strip(), given.value


def _report(folder: Path, said: dict[str, Any]) -> None:
    """Prints what is certain."""
    from analysis.certainty.summary import summarise

    counts = said["counts"]
    same = counts["replayed"] / counts["outcomes"]
    out.print(
        f"{counts['worlds']:,} worlds, {counts['outcomes']:,} outcomes: in {same:.1%} of them the order of the learning "
        f"stays the same; {counts['order differs']:,} differ, {counts['trained']:,} of those were trained more, "
        f"{counts['failed']:,} are no worlds"
    )
    sys.stdout.write(f"\n{summarise(folder)}\n")  # tables are not to be wrapped
    out.print(f"wrote {escape(str(folder))}")


class _Shown:
    """Says now and then how far it is."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def on_step(self, what: str, done: int, of: int) -> None:
        """Heard after each step."""
        if time.monotonic() - self._last >= PLAIN_EVERY_S:
            self._last = time.monotonic()
            err.print(f"{what}: {done:,}" + (f" of {of:,}" if of else ""))
