"""One self-contained HTML page about a run, several runs or a study: no network, no scripts, pictures inline.

Whatever stands in scenarios, names, notes and messages is escaped (Jinja's autoescape; matplotlib escapes the texts of pictures).
The page does not say when it was made, so the same folders give the same bytes.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from analysis import fleets, printed
from analysis.claims import table_of
from analysis.differences import differences
from analysis.figures import SeriesFigure, series_of
from analysis.quantities import axis_named, bytes_text, cost_text, energy_text, time_text
from analysis.runs import CLUSTERS, COMPLETE, Run, measure_of
from analysis.series import Series, load_results
from analysis.studies import INDEX, StudyResults, states_of
from analysis.tables import accuracy_at_budget
from analysis.texttable import TextTable
from analysis.tuned import table_of as tuned_table
from analysis.worlds import load_worlds
from emulator.errors import InputError
from emulator.files import read_json, slug
from emulator.standing import EPSILON

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

P = ParamSpec("P")

MANY_SERIES = 6  # of more, those pictures that show one method each show only the first ones
CLIENTS = 30  # in a time line
SCREEN_INCH = 125  # pixels of a screen for an inch of paper: what has 8 points on paper is as large as small print here
AXES = ("time", "cost", "bytes", "energy", "round")
TEMPLATE = "report.html.j2"
DRAWN_BY_SEED = "Fleets differ by seed: shown is that of the first one."


@dataclass(frozen=True)
class Picture:
    """A figure as SVG that can stand in a page, and what it shows."""

    svg: Markup
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page; everything but its title may be missing."""

    title: str
    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[TextTable, ...] = ()
    listings: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return slug(self.title)


def report(folders: Sequence[Path | str]) -> str:
    """The page about run folders, or about one study folder; runs that differ in their seed alone are shown together.

    Raises `InputError` where a folder is neither, or damaged, or a study has no complete run.
    """
    import jinja2

    from emulator import __version__

    results = load_results(folders)
    series = series_of(results, SeriesFigure())
    about = read_json(results.folder / INDEX) or {} if results.name else {}
    run = series[0].first
    alone = not results.name and len(series) == 1 and len(series[0].runs) == 1
    if results.name:
        kind, title, notes = "Study", results.name, str(about.get("notes", ""))
    elif alone:
        kind, title, notes = "Run", f"{run.name}: {run.label}", str(run.scenario.get("notes", ""))
    else:
        kind, title, notes = "Comparison", ", ".join(each.label for each in series), ""
    places = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = places.get_template(TEMPLATE)
    sections = list(_sections(results, series, alone))
    return page.render(title=title, kind=kind, notes=notes, version=__version__, sections=sections)


def _sections(results: StudyResults, series: Sequence[Series], alone: bool) -> Iterator[Section]:
    trained = all(run.training for each in series for run in each.runs)
    yield _summary(series, alone, trained)
    if results.missing:
        yield _missing(results)
    if results.stated:
        yield _claims(results)
    if results.name:
        yield from _worlds_and_tuning(results)
    if trained:
        yield _curves(results, series)
        yield Section("Cost to target", tables=printed.table("cost-to-target", series, results.target).sections)
        if len(series) > 1:
            yield _pareto(series)
    yield _breakdown(series)
    yield _timeline(series)
    yield _stragglers(series)
    yield _groups(series)
    if any((run.folder / CLUSTERS).is_file() for each in series for run in each.runs):
        yield _clusters(series)
    yield _fleet(series)
    yield _scenario(series)
    yield _again(results, series)


def _summary(series: Sequence[Series], alone: bool, trained: bool) -> Section:
    without = () if trained else ("Runs without training, or of apps that report none: there is no accuracy.",)
    measure = measure_of(run for each in series for run in each.runs)
    if not alone:
        return Section("Summary", texts=without, tables=printed.table("totals", series).sections)
    run = series[0].first
    last = run.metrics.iloc[-1]
    facts = [("Method", run.label), ("Seed", "unknown" if run.seed is None else str(run.seed))]
    if trained:
        facts.append((f"Final {measure.called}", measure.text(float(last[measure.name]))))
        if run.budget:
            facts.append(("At its budget", measure.text(accuracy_at_budget(run))))
        facts.append((f"Best {measure.called}", measure.text(measure.best(run.judged))))
    facts += [
        ("Rounds", f"{int(last['round'])}"),
        ("Emulated time", time_text(float(last["time_s"]))),
        ("Data over all links", bytes_text(float(last["bytes_total"]))),
        ("Cost", cost_text(float(last["cost_s"]))),
        ("Energy of the clients", energy_text(float(last["energy_j"])) if last["energy_j"] >= 0 else "unknown"),
        ("Status", run.status),
    ]
    if EPSILON in last:
        facts.append(("Privacy spent", f"ε = {last[EPSILON]:.3g}"))
    if run.summary.get("stopped_by"):
        facts.append(("Stopped by", str(run.summary["stopped_by"])))
    error = run.summary.get("error")
    warnings = (
        ()
        if run.status == COMPLETE
        else (f"This run is not complete: {run.status}" + (f": {error}" if error else "."),)
    )
    return Section("Summary", texts=without, warnings=warnings, facts=tuple(facts))


def _missing(results: StudyResults) -> Section:
    states = states_of(results.folder, results.missing)
    failed = sum(state.startswith("failed") for state in states.values())
    of = len(results.missing) + len(results.folders)
    text = f"{len(states)} of {of} runs are not complete" + (f", {failed} of them failed" if failed else "")
    table = TextTable("Runs that are left out everywhere else", ("run", "state"), tuple(states.items()), (False, False))
    return Section("Runs not complete", warnings=(f"{text}. Means are over the runs that are.",), tables=(table,))


def _worlds_and_tuning(results: StudyResults) -> Iterator[Section]:
    """The claims that a study makes about its what-if, and which values it has tuned."""
    about = read_json(results.folder / INDEX) or {}
    if "whatif" in about:
        worlds = load_worlds(results.folder).study
        if worlds is not None and worlds.stated:
            yield _claims(worlds, "Claims about the what-if")
    if "tune" in about and (tuned := tuned_table(results.folder)) is not None:
        yield Section("Tuning", tables=(tuned,))


def _claims(results: StudyResults, title: str = "Claims") -> Section:
    """What became of claims."""
    from analysis.plots import claims

    found = _Found(
        [
            "A claim is shown, or contradicted, where the 95 % interval of the mean difference lies wholly on one side. "
            "Pairs of runs have the same seed and are alike in all that the claim does not name."
        ]
    )
    found.draw(
        "By how much the first is better: mean and its 95 % interval (Student's t).",
        True,
        claims.plot,
        results.claims,
        measure=results.measure,
    )
    sources = tuple(
        dict.fromkeys(f"{row['claim']}: {row['source']}" for row in results.claims.to_dict("records") if row["source"])
    )
    texts = (*found.said, *sources)
    return Section(
        title, texts=texts, pictures=tuple(found.pictures), tables=(table_of(results.claims, results.measure),)
    )


def _curves(results: StudyResults, series: Sequence[Series]) -> Section:
    from analysis.plots.cost_accuracy import plot_series

    found = _Found()
    for axis in (*AXES, *_privacy(series)):
        found.draw(
            f"Test {results.measure.called} against {axis_named(axis).title.lower()}.",
            False,
            plot_series,
            series,
            (axis,),
            target=results.target,
        )
    return Section(results.measure.heading, texts=tuple(found.said), pictures=tuple(found.pictures))


def _privacy(series: Sequence[Series]) -> tuple[str, ...]:
    """The axis of privacy, where all runs know what they spent of it."""
    return (EPSILON,) if all(EPSILON in run.metrics for each in series for run in each.runs) else ()


def _pareto(series: Sequence[Series]) -> Section:
    from analysis.plots import pareto

    measure = measure_of(run for each in series for run in each.runs)
    found = _Found(["A method is on the front where no other is at least as accurate for at most as much."])
    for axis in (*AXES[:-1], *_privacy(series)):
        found.draw(
            f"Final {measure.called} against {axis_named(axis).title.lower()}.", False, pareto.plot, series, (axis,)
        )
    return Section("Pareto front", texts=tuple(found.said), pictures=tuple(found.pictures))


def _breakdown(series: Sequence[Series]) -> Section:
    from analysis.plots import breakdown

    captions = {
        "time": "Where the clients' time goes. A client waits while it does nothing in a round that it takes part in.",
        "bytes": "Data by kind of hop. What passes an edge counts on both hops.",
        "energy": "Energy of the clients: idle power all the time, and what other states draw above it.",
    }
    found = _Found()
    for of, caption in captions.items():
        found.draw(caption, False, breakdown.plot, series, of, narrow=True)
    found.tabulate("breakdown", series)
    return Section("Breakdown", tuple(found.said), pictures=tuple(found.pictures), tables=tuple(found.tables))


def _timeline(series: Sequence[Series]) -> Section:
    from analysis.plots import timeline

    found = _Found(_cut(series))
    for each in series[:MANY_SERIES]:
        caption = f"Round 1 of {each.title}, client by client: above what the device does, below its link."
        found.draw(caption, True, timeline.plot, [each.alone], 1, CLIENTS)
    return Section("Time line of a round", texts=tuple(found.said), pictures=tuple(found.pictures))


def _stragglers(series: Sequence[Series]) -> Section:
    from analysis.plots import stragglers

    found = _Found(_cut(series))
    for each in series[:MANY_SERIES]:
        caption = f"{each.title}: what each client does in a group round; the quick wait for the slow."
        found.draw(caption, False, stragglers.plot, [each.alone])
    if len(series) == 1:
        found.tabulate("stragglers", series)
    return Section("Stragglers", tuple(found.said), pictures=tuple(found.pictures), tables=tuple(found.tables))


def _groups(series: Sequence[Series]) -> Section:
    from analysis.plots import groups

    found = _Found(_cut(series))
    for each in series[:MANY_SERIES]:
        caption = f"{each.title}: samples by label in each group, as the groups were formed last."
        found.draw(caption, False, groups.plot_series, [each.alone])
    return Section("Groups", texts=tuple(found.said), pictures=tuple(found.pictures))


def _clusters(series: Sequence[Series]) -> Section:
    """The tables and trees of clusters; only for methods that make some."""
    from analysis.plots import cluster_tree, cost_accuracy

    found = _Found()
    found.tabulate("clusters", series)
    caption = "Accuracy, mean over clusters, each cluster's model on data as its clients hold it."
    found.draw(caption, False, cost_accuracy.plot_series, series, ("time",), accuracy="clusters")
    trees = [each for each in series if (each.first.folder / CLUSTERS).is_file()]
    found.said += _cut(trees)
    for each in trees[:MANY_SERIES]:
        caption = f"{each.title}: how its clusters came to be. A band is as high as its cluster has clients."
        found.draw(caption, True, cluster_tree.plot, [each.alone])
    return Section("Clusters", tuple(found.said), pictures=tuple(found.pictures), tables=tuple(found.tables))


def _fleet(series: Sequence[Series]) -> Section:
    """Each different fleet of the runs, with a word on which have it."""
    from analysis.plots import fleet as picture

    found = _Found([DRAWN_BY_SEED] if fleets.drawn_by_seed(series) else [])
    try:
        every = fleets.different(series)
    except InputError as error:
        return Section("Fleet", texts=(error.message,))
    if len(every) > MANY_SERIES:
        found.said.append(f"Not shown here: {len(every) - MANY_SERIES} of {len(every)} different fleets.")
    for shown, having in every[:MANY_SERIES]:
        whose = ", ".join(each.title for each in having)
        links = having[0].first.scenario.get("topology", {}).get("links", {})
        said = f"{whose}: servers by tier, and clients. The more bandwidth upwards, the wider a line. {fleets.replaced(links)}"
        found.draw(said, True, picture.plot, shown)
        found.tables += fleets.tables_of(shown, whose if len(every) > 1 else "")
    return Section("Fleet", texts=tuple(found.said), pictures=tuple(found.pictures), tables=tuple(found.tables))


class _Found:
    """Pictures and tables of a section; where the runs do not have what one needs, ``said`` says so once."""

    def __init__(self, said: Sequence[str] = ()) -> None:
        self.said = list(said)
        self.pictures: list[Picture] = []
        self.tables: list[TextTable] = []

    def draw(self, caption: str, wide: bool, plot: Callable[P, Figure], *args: P.args, **kwargs: P.kwargs) -> None:
        """Adds the picture that ``plot`` draws."""
        try:
            self.pictures.append(Picture(svg(plot(*args, **kwargs)), caption, wide))
        except InputError as error:
            self._say(error.message)

    def tabulate(self, kind: str, series: Sequence[Series]) -> None:
        """Adds a table."""
        try:
            self.tables += printed.table(kind, series).sections
        except InputError as error:
            self._say(error.message)

    def _say(self, message: str) -> None:
        if message not in self.said:
            self.said.append(message)


def _cut(series: Sequence[Series]) -> tuple[str, ...]:
    left = [each.label for each in series[MANY_SERIES:]]
    return (f"Not shown here: {', '.join(left)}.",) if left else ()


def _scenario(series: Sequence[Series]) -> Section:
    """The scenario of the first series, and in which keys the others differ from it."""
    import yaml

    first = series[0].first.scenario
    if not first:
        return Section("Scenario", texts=("The run folder has no scenario.yaml.",))
    tables = []
    if len(series) > 1:
        differ = differences([each.first.scenario for each in series])
        rows = tuple((key, *values) for key, values in differ.items())
        header = ("key", *(each.label for each in series))
        tables.append(TextTable("In what the methods differ", header, rows, (False,) * len(header)))
    heading = f"# {series[0].title}, with all defaults" if len(series) > 1 else "# with all defaults"
    listing = yaml.safe_dump(first, sort_keys=False, allow_unicode=True, width=100)
    return Section("Scenario", tables=tuple(tables), listings=(f"{heading}\n{listing}",))


def _again(results: StudyResults, series: Sequence[Series]) -> Section:
    run = series[0].first
    manifest = run.manifest
    listings = []
    command = manifest.get("command")
    if isinstance(command, list) and command:
        listings.append(f"# how it was made\n{shlex.join(str(word) for word in command)}")
    if results.name:
        listings.append("# a single run of the study, from its folder\nhfl run RUN/scenario.yaml --out again --no-memo")
    else:
        extra = "" if run.training else " --no-training"
        listings.append(
            f"# with the scenario above saved as scenario.yaml\nhfl run scenario.yaml --out again --no-memo{extra}"
        )
    packages = manifest.get("packages")
    versions = {"hfl-emulator": manifest.get("hfl_emulator", "unknown"), "python": manifest.get("python", "unknown")}
    versions |= packages if isinstance(packages, dict) else {}
    rows = tuple((str(name), str(version)) for name, version in versions.items())
    text = "The same scenario and versions give the same results, byte for byte."
    tables = (TextTable("Versions", ("package", "version"), rows, (False, False)), _runs(series))
    return Section("How to reproduce it", texts=(text,), tables=tables, listings=tuple(listings))


def _runs(series: Sequence[Series]) -> TextTable:
    rows: list[tuple[str, ...]] = []
    for each in series:
        rows += [(each.label, _seed(run), run.status, run.folder.resolve().name) for run in each.runs]
    return TextTable("Runs", ("method", "seed", "status", "folder"), tuple(rows), (False, True, False, False))


def _seed(run: Run) -> str:
    return "unknown" if run.seed is None else str(run.seed)


_IDS = re.compile(r'(\bid="|xlink:href="#|url\(#)')


def svg(figure: Figure) -> Markup:
    """A figure as SVG for a page: as wide as there is room, with names of its own, so that several can stand in one page."""
    import hashlib

    from markupsafe import Markup

    from analysis.plots.style import style

    drawn = io.BytesIO()
    with style():
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    text = drawn.getvalue().decode()
    own = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = text[text.index("<svg") :]
    text = _IDS.sub(lambda found: f"{found.group(1)}f{own}-", text)
    sized = f'<svg style="max-width: {figure.get_figwidth() * SCREEN_INCH:.0f}px"'
    head, rest = text[: text.index(">") + 1], text[text.index(">") + 1 :]
    head = re.sub(r' (width|height)="[^"]*"', "", head).replace("<svg", sized, 1)
    return Markup(head + rest)
