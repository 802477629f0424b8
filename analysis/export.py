"""Runs for other tools: TensorBoard event files, and CSV files that anything reads."""

from __future__ import annotations

import math
from pathlib import Path

from analysis.runs import LEDGER, Run
from emulator.errors import InputError
from emulator.files import replacing, write_text

SCALARS = {
    "accuracy": "test/accuracy", "loss": "test/loss", "time_s": "emulated/time_s", "energy_j": "emulated/energy_j",
    **{name: f"test/{name}" for name in ("macro_f1", "mae", "r2", "perplexity")},
}  # fmt: skip


def to_csv(run: Run, folder: Path | str) -> list[Path]:
    """Writes every table of a run into a folder as CSV: metrics, ledger, energy, groups, what its method declares. Returns them.

    Everything is in SI units and full precision; the ledger may be long and is written piece by piece. Raises `InputError` where
    a file of the run is damaged, or where the folder is a file.
    """
    folder = _folder(folder)
    names = [name for name in run.tables if name != "ledger"]
    texts = {f"{name}.csv": run.table(name).to_csv(index=False, lineterminator="\n") for name in names}
    for name, text in texts.items():
        write_text(folder / name, text)
    written = [folder / name for name in texts]
    if "ledger" in run.tables:
        _write_ledger(run, folder / "ledger.csv")
        written.append(folder / "ledger.csv")
    return written


def _write_ledger(run: Run, path: Path) -> None:
    from emulator.ledger import Row, batches

    source = run.folder / LEDGER
    with replacing(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        try:
            for i, batch in enumerate(batches(source, *Row._fields)):
                batch.to_pandas().to_csv(file, index=False, header=i == 0, lineterminator="\n")
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"'{source}' is damaged or was written by another version: {error}") from None


def to_tensorboard(run: Run, folder: Path | str) -> None:
    """Writes a run's metrics as TensorBoard scalars: the step is the round, and the wall time is the emulated time.

    So TensorBoard's *relative* axis shows emulated time. Tags are ``test/accuracy``, ``bytes/total``, ``cost/cost_s`` and so on.
    What was not measured has no point. Raises `InputError` where the package ``tensorboard`` is not installed, or the folder
    holds event files already (TensorBoard would show both runs as one).
    """
    try:
        from tensorboard.summary import Writer
    except ImportError:
        raise InputError(
            "exporting to TensorBoard needs the package 'tensorboard': pip install 'hfl-emulator[tensorboard]'"
        ) from None
    folder = _folder(folder)
    if any(folder.glob("events.out.tfevents.*")):
        raise InputError(f"'{folder}' holds event files already; give another folder")
    writer = Writer(str(folder))
    try:
        for row in run.metrics.to_dict("records"):
            for column, value in row.items():
                if column == "round" or not isinstance(value, int | float) or math.isnan(value):
                    continue
                writer.add_scalar(tag_of(str(column)), value, int(row["round"]), wall_time=float(row["time_s"]))
    finally:
        writer.close()


def tag_of(column: str) -> str:
    """What TensorBoard calls a column of metrics.csv; what stands before the slash becomes a group of charts."""
    if column in SCALARS:
        return SCALARS[column]
    group, _, rest = column.partition("_")
    return f"{group}/{rest}" if group == "bytes" else f"cost/{column}" if group == "cost" else f"other/{column}"


def _folder(folder: Path | str) -> Path:
    folder = Path(folder)
    if folder.is_file():
        raise InputError(f"'{folder}' is a file; give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
