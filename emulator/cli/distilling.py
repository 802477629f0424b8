"""``hfl distil`` and ``hfl topology``: what headers are sent, and from whom."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from emulator import scenario
from emulator.cli.app import PluginOption, ScenarioArgument, SetOption, app, import_plugins, out
from emulator.errors import InputError
from emulator.scenario import Loaded

if TYPE_CHECKING:
    import numpy as np

    from emulator.learning.clients import ClientData
    from emulator.learning.distillation import DistillationParams

SHOWN = 10  # images side by side


@app.command()
def topology(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    plot: Annotated[Path, typer.Option(metavar="FILE", help="The picture (PNG, SVG or PDF).")],
    plugin: PluginOption = None,
) -> None:
    """Draw the headers of a run and their members."""
    import_plugins(plugin)
    from analysis.folders import one_run
    from analysis.plots.topology import plot as draw
    from analysis.plots.topology import read_topology
    from analysis.runs import load_run

    draw({"": read_topology(load_run(one_run(folder)).folder)}, plot)
    out.print(f"wrote {escape(str(plot))}")


@app.command()
def distil(
    name: ScenarioArgument,
    client: Annotated[
        list[int] | None, typer.Option(min=0, help="Whose data, by number. Repeatable. (default: one of each label)")
    ] = None,
    changes: SetOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw distilled images below real ones (PNG, SVG or PDF).")
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Distil clients' data as a scenario's method would, and show what leaves a client beside what it was made of."""
    import_plugins(plugin)
    if plot is not None:
        from analysis.plots.style import check_path

        check_path(plot)
    loaded = scenario.load(name, changes or [])
    try:
        params = _params(loaded)
        data, clients = _clients(loaded, client)
        pairs = [_distilled(loaded, data, number, params) for number in clients]
    except InputError as error:
        raise loaded.locate(error) from error
    if plot is not None:
        _draw(loaded, pairs, params, plot)
        out.print(f"wrote {escape(str(plot))}")


def _params(loaded: Loaded) -> DistillationParams:
    from emulator.learning.distillation import DistillationParams

    training = getattr(loaded.scenario.method.params, "training", None)
    if training is None or not isinstance(training.params, DistillationParams):
        raise InputError("the method distils nothing; 'hfldd' does", "method")
    return training.params


def _clients(loaded: Loaded, wanted: list[int] | None) -> tuple[ClientData, list[int]]:
    """The data of the scenario, and the clients that were asked for, or the first that has most of each label."""
    from emulator.learning.clients import ClientData
    from emulator.learning.distillation import check_distillable

    data = ClientData(loaded.scenario)
    check_distillable(data.arrays.shape)
    for number in wanted or ():
        if number >= len(data.parts):
            raise InputError(
                f"there is no client {number}; they are numbered from 0 to {len(data.parts) - 1}", "--client"
            )
    if wanted:
        return data, wanted
    first: dict[int, int] = {}
    for number, counts in enumerate(data.label_counts):
        if counts.sum():
            first.setdefault(int(counts.argmax()), number)
    return data, [first[label] for label in sorted(first)][:SHOWN]


def _distilled(
    loaded: Loaded, data: ClientData, number: int, params: DistillationParams
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The samples that the images began as, the images, and the labels of those; says what it took."""
    import numpy as np
    import torch

    from analysis.quantities import bytes_text, time_text
    from devices.compute import flops_s
    from emulator.learning.distillation import DistilJob, balanced_choice, distil_client, distillation_flops
    from emulator.rng import stream
    from emulator.world.fleet import Fleet

    arrays, seed = data.arrays, loaded.scenario.seed
    x, y, mine = torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train), data.parts[number]
    images, _ = distil_client(x, y, data.parts, DistilJob(number, arrays.classes, params), seed)
    labels = arrays.y_train[mine]
    chosen = np.arange(len(mine))
    if len(mine) > params.images:
        chosen = balanced_choice(labels, params.images, stream(seed, "distillation", number))
    began, made = arrays.x_train[mine][chosen], images.numpy()
    device = Fleet(loaded.scenario.topology, seed).client_devices[number]
    seconds = flops_s(device, distillation_flops(len(mine), params, math.prod(arrays.shape), arrays.classes))
    likeness = [float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) for a, b in zip(began, made, strict=True)]
    out.print(
        f"client {number}: {len(mine)} samples -> {len(made)} images of {bytes_text(made[0].size)}, "
        f"{time_text(seconds)} on {escape(device.name)}; correlation with the samples they began as {np.mean(likeness):.2f}"
    )
    if len(mine) <= params.images:
        out.print("  [yellow]these are its samples as they are: it has no more than it would distil[/]")
    return began, made, labels[chosen]


def _draw(
    loaded: Loaded, pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]], params: DistillationParams, path: Path
) -> None:
    """Draws ten images at most: of each client in turn the first of each of its labels, then further ones."""
    import numpy as np

    from analysis.plots.images import plot

    turns = []
    for which, (_, _, labels) in enumerate(pairs):
        seen: dict[int, int] = {}
        for image, label in enumerate(labels.tolist()):
            seen[label] = seen.get(label, -1) + 1
            turns.append((seen[label], which, image))
    chosen = sorted(sorted(turns)[:SHOWN], key=lambda at: (int(pairs[at[1]][2][at[2]]), at))
    rows = {
        title: np.stack([pairs[which][part][image] for _, which, image in chosen])
        for part, title in ((0, "real"), (1, "distilled"))
    }
    labels = np.array([pairs[which][2][image] for _, which, image in chosen])
    plot(rows, labels, path, title=f"What leaves the clients of '{loaded.scenario.name}', after {params.steps} steps")
