"""One self-contained HTML page about a run, several runs, a study or a certificate: no network, no scripts, pictures inline.

Whatever stands in scenarios, names, notes and messages is escaped (Jinja's autoescape; matplotlib escapes the texts of pictures).
The page does not say when it was made, so the same folders give the same bytes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import fleets, printed
from analysis.claims import table_of
from analysis.clock_errors import is_measured
from analysis.differences import differences
from analysis.figures import SeriesFigure, series_of
from analysis.quantities import axis_named, bytes_text, charged_in, cost_text, energy_text, time_text
from analysis.report_parts import Found, Section
from analysis.runs import CLUSTERS, COMPLETE, Run, measure_of
from analysis.series import Series, load_results
from analysis.studies import INDEX, StudyResults, states_of
from analysis.tables import accuracy_at_budget
from analysis.texttable import TextTable
from analysis.tuned import table_of as tuned_table
from analysis.worlds import load_worlds
from emulator.errors import InputError
from emulator.files import read_json
from emulator.priced import CARBON, MONEY
from emulator.standing import EPSILON

if TYPE_CHECKING:
    pass

MANY_SERIES = 6  # of more, those pictures that show one method each show only the first ones
CLIENTS = 30  # in a time line
AXES = ("time", "cost", "bytes", "energy", "round")
TEMPLATE = "report.html.j2"
DRAWN_BY_SEED = "Fleets differ by seed: shown is that of the first one."


def report(folders: Sequence[Path | str], clock: bool = False) -> str:
    """The page about run folders, one study or one certificate; runs that differ in their seed alone are shown together.

    Of two runs of which the second is measured, or with ``clock``, it also has the errors of the first one's clock. Raises
    `InputError` where a folder is none of these, or damaged, or a study has no complete run; with ``clock``, also as
    `analysis.clock_table.of_two`.
    """
    from analysis.certainty.certificate import one_certificate
    from analysis.certainty.report import sections as about_certificate

    certificate = one_certificate(folders)
    if certificate is not None:
        return render("Certificate", certificate.name, "", list(about_certificate(certificate)))
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
    return render(kind, title, notes, list(_sections(results, series, alone, clock)))


def render(kind: str, title: str, notes: str, sections: Sequence[Section]) -> str:
    """A page of these sections, about a thing of this kind."""
    import jinja2

    from emulator import __version__

    places = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = places.get_template(TEMPLATE)
    return page.render(title=title, kind=kind, notes=notes, version=__version__, sections=sections)


def _sections(results: StudyResults, series: Sequence[Series], alone: bool, clock: bool) -> Iterator[Section]:
    runs = [run for each in series for run in each.runs]
    trained = all(run.training for run in runs)
    yield _summary(series, alone, trained)
    if clock or ([is_measured(run) for run in runs] == [False, True] and runs[0].label == runs[1].label):
        yield _clock(series, clock)
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
        *((name[0].upper() + name[1:], text(float(last[c]))) for c, (name, text) in charged_in([run.metrics]).items()),
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


def _clock(series: Sequence[Series], asked: bool) -> Section:
    """How far the clock of the first run is off the second's; where that was not asked for, or why it cannot be said."""
    from analysis import clock_table
    from analysis.plots import clock

    try:
        errors = clock_table.of_two(series)
    except InputError as error:
        if asked:
            raise
        return Section("Clock", texts=(error.message,))
    one, other = errors.names
    found = Found([f"Errors are ({one} - {other}) / {other}: with a minus the {one} clock is too fast."])
    caption = "Round 1 in both runs, client by client; how long each round lasted; and how far each phase is off."
    found.draw(caption, True, clock.plot, errors)
    tables = clock_table.printed(errors).sections
    return Section("Clock", tuple(found.said), pictures=tuple(found.pictures), tables=tables)


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

    found = Found(
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

    found = Found()
    for axis in (*AXES, *_further(series)):
        found.draw(
            f"Test {results.measure.called} against {axis_named(axis).title.lower()}.",
            False,
            plot_series,
            series,
            (axis,),
            target=results.target,
        )
    return Section(results.measure.heading, texts=tuple(found.said), pictures=tuple(found.pictures))


def _further(series: Sequence[Series]) -> tuple[str, ...]:
    """Further axes, of which all runs know what they spent: money and CO2, and privacy."""
    columns = {"money": MONEY, "carbon": CARBON, EPSILON: EPSILON}
    runs = [run for each in series for run in each.runs]
    return tuple(name for name, column in columns.items() if all(column in run.metrics for run in runs))


def _pareto(series: Sequence[Series]) -> Section:
    from analysis.plots import pareto

    measure = measure_of(run for each in series for run in each.runs)
    found = Found(["A method is on the front where no other is at least as accurate for at most as much."])
    for axis in (*AXES[:-1], *_further(series)):
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
    found = Found()
    for of, caption in captions.items():
        found.draw(caption, False, breakdown.plot, series, of, narrow=True)
    found.tabulate("breakdown", series)
    return Section("Breakdown", tuple(found.said), pictures=tuple(found.pictures), tables=tuple(found.tables))


def _timeline(series: Sequence[Series]) -> Section:
    from analysis.plots import timeline

    found = Found(_cut(series))
    for each in series[:MANY_SERIES]:
        caption = f"Round 1 of {each.title}, client by client: above what the device does, below its link."
        found.draw(caption, True, timeline.plot, [each.alone], 1, CLIENTS)
    return Section("Time line of a round", texts=tuple(found.said), pictures=tuple(found.pictures))


def _stragglers(series: Sequence[Series]) -> Section:
    from analysis.plots import stragglers

    found = Found(_cut(series))
    for each in series[:MANY_SERIES]:
        caption = f"{each.title}: what each client does in a group round; the quick wait for the slow."
        found.draw(caption, False, stragglers.plot, [each.alone])
    if len(series) == 1:
        found.tabulate("stragglers", series)
    return Section("Stragglers", tuple(found.said), pictures=tuple(found.pictures), tables=tuple(found.tables))


def _groups(series: Sequence[Series]) -> Section:
    from analysis.plots import groups

    found = Found(_cut(series))
    for each in series[:MANY_SERIES]:
        caption = f"{each.title}: samples by label in each group, as the groups were formed last."
        found.draw(caption, False, groups.plot_series, [each.alone])
    return Section("Groups", texts=tuple(found.said), pictures=tuple(found.pictures))


def _clusters(series: Sequence[Series]) -> Section:
    """The tables and trees of clusters; only for methods that make some."""
    from analysis.plots import cluster_tree, cost_accuracy

    found = Found()
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

    found = Found([DRAWN_BY_SEED] if fleets.drawn_by_seed(series) else [])
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
