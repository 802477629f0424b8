"""Pictures and figures of clustered learning: numbers in what is drawn, against trees and tables made by hand."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_samples import metrics, write_folder
from cluster_samples import TREE, TRUTH, alone, stability_rows, tree_rows, write_clustered
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from analysis import printed
from analysis.cluster_history import clustering_rounds, final_clusters, tree, true_clusters, weights_kept
from analysis.figures import draw_folders
from analysis.plots import cluster_tree, cost_accuracy, grid_table, similarity, stability, trials
from analysis.plots.groups import LABEL_COLOURS
from analysis.report import report
from analysis.runs import load_run
from analysis.studies import as_text, load_study, per_run, summarise
from emulator.errors import InputError
from emulator.files import write_json


def texts(box: Axes) -> list[str]:
    return [text.get_text() for text in box.texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def bands(box: Axes) -> list[tuple[str, float, float, float, float]]:
    """Colour, left, right, bottom and top of everything filled."""
    found = []
    for patch in box.collections:
        if isinstance(patch, PolyCollection):
            [path] = patch.get_paths()
            (x0, y0), (x1, y1) = path.get_extents().get_points()
            found.append((to_hex(patch.get_facecolor()[0]), x0, x1, y0, y1))  # type: ignore[index]
    return found


# What run folders tell.


def test_a_tree_is_read_with_when_its_clusters_end(tmp_path: Path) -> None:
    run = load_run(write_clustered(tmp_path / "a"))
    nodes = tree(run)
    assert [n.cluster for n in nodes] == list(range(7))
    assert [(n.born[0], n.ended[0]) for n in nodes] == [(0, 4), (4, 6), (4, 8), (6, 8), (6, 8), (8, 10), (8, 10)]
    assert nodes[1].born == (4, 40.0)
    assert (nodes[1].layer, nodes[1].reference, nodes[5].reference) == ("7", 2, None)
    assert final_clusters(run).tolist() == [5, 6] * 4
    truth = true_clusters(run)
    assert truth is not None
    assert truth.tolist() == list(TRUTH)
    assert true_clusters(load_run(write_clustered(tmp_path / "b", truth=None))) is None


def test_clusters_that_clients_choose_end_when_they_change(tmp_path: Path) -> None:
    rows = tree_rows(
        (0, (), "choice", 1, (0, 1, 2), "", None), (1, (), "choice", 1, (3,), "", None),
        (0, (), "choice", 3, (0, 1), "", None), (1, (), "choice", 3, (2, 3), "", None),
    )  # fmt: skip
    run = load_run(write_clustered(tmp_path / "a", rows, (0, 0, 1, 1)))
    assert [(n.born[0], n.ended[0]) for n in tree(run)] == [(1, 3), (1, 3), (3, 10), (3, 10)]
    assert final_clusters(run).tolist() == [0, 0, 1, 1]
    assert clustering_rounds(run) == 3


def test_rounds_to_the_final_clusters(tmp_path: Path) -> None:
    assert clustering_rounds(load_run(write_clustered(tmp_path / "merged"))) == 8
    assert clustering_rounds(load_run(write_clustered(tmp_path / "split", TREE[:5]))) == 6
    assert clustering_rounds(load_run(write_clustered(tmp_path / "never", TREE[:1]))) == 0
    kept = [*TREE[:1], {**TREE[-1], "parents": "0", "members": TREE[0]["members"]}]
    assert (
        clustering_rounds(load_run(write_clustered(tmp_path / "kept", kept))) == 0
    )  # reorganised, and nothing came of it
    assert math.isnan(clustering_rounds(load_run(write_clustered(tmp_path / "none", None))))


def test_the_share_of_weights_that_count_is_over_all_layers(tmp_path: Path) -> None:
    rows = stability_rows({"0": [0.3, 0.2], "7": [0.2, 0.1]}, sizes={"0": 100, "7": 300})
    for row in rows:
        if row["layer"] == "0":
            row["weights_kept"] = 20  # of 100; of the other layer's 300 half
    assert weights_kept(load_run(write_clustered(tmp_path / "a", tables={"stability": rows}))) == 170 / 400
    assert math.isnan(weights_kept(load_run(write_clustered(tmp_path / "b", tables={"stability": rows[:2]}))))
    assert math.isnan(weights_kept(load_run(write_clustered(tmp_path / "c"))))


def test_damaged_and_missing_tables_are_named(tmp_path: Path) -> None:
    run = load_run(write_folder(tmp_path / "plain", metrics([0.1, 0.2])))
    for name, hint in {
        "clusters": "its method makes no clusters", "stability": "does not watch", "trials": "'method.trial: true'",
        "similarity": "'method.record_similarity'",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=rf"has no {name}.csv: .*{hint}"):
            getattr(run, name)
    folder = write_clustered(tmp_path / "a")
    (folder / "memory.json").write_text(json.dumps({"clusters:abc": "not base64!"}))
    with pytest.raises(InputError, match=r"memory.json' is damaged"):
        true_clusters(load_run(folder))
    (folder / "clusters.csv").write_text("cluster,parents\n0,\n")
    with pytest.raises(InputError, match="another version"):
        _ = load_run(folder).clusters


# Studies.


def make_study(folder: Path) -> Path:
    """HiCFL splits in one of two seeds; FedAvg is judged by clusters, but makes none."""
    rows = stability_rows({"7": [0.3, 0.2]}, kept=0.25)
    runs = []
    for method, seed in (("HiCFL", 0), ("HiCFL", 1), ("FedAvg", 0), ("FedAvg", 1)):
        name = f"{method.lower()}_seed-{seed}"
        of = (TREE if seed else TREE[:1]) if method == "HiCFL" else None
        tables = {"stability": rows} if method == "HiCFL" else {}
        write_clustered(folder / name, of, tables=tables, rounds=10 + seed, seed=seed, label=method.lower())
        runs.append({"run": name, "variant": method, "method": method.lower(), "point": {}, "seed": seed})
    about = {"name": "made up", "notes": "", "columns": ["variant"], "target": 0.3, "runs": runs}
    write_json(folder / "study.json", about)
    return folder


def test_a_study_tells_global_cluster_and_client_accuracy_apart(tmp_path: Path) -> None:
    results = load_study(make_study(tmp_path))
    first = per_run(results).iloc[0]
    assert (first["final_accuracy"], first["accuracy_clusters"], first["accuracy_clients"]) == pytest.approx(
        (0.5, 0.6, 0.7)
    )
    assert (first["clusters"], first["adjusted_rand"], first["weights_kept"]) == pytest.approx((2, 1, 0.25))
    assert {"clustering_rounds", "weights_kept", "accuracy_clusters"} <= set(results.table.columns)
    hicfl, fedavg = summarise(results).to_dict("records")
    assert hicfl["accuracy_clusters_mean"] == pytest.approx(0.63)
    assert (hicfl["clustering_rounds_mean"], hicfl["clustered"]) == (8, 1)  # never and 8
    assert math.isnan(fedavg["clustering_rounds_mean"])
    assert math.isnan(fedavg["weights_kept_mean"])
    said = as_text(summarise(results), results.columns)
    assert "Clusters at the end" in said
    assert "mean over clusters" in said
    assert "63.0 ± 38.1 %" in said


def test_a_study_without_clusters_says_nothing_of_them(tmp_path: Path) -> None:
    folder = make_study(tmp_path)
    for place in folder.glob("*/"):
        (place / "clusters.csv").unlink(missing_ok=True)
        table = load_run(place).metrics.drop(
            columns=["clusters", "accuracy_clusters", "accuracy_clients", "adjusted_rand"]
        )
        table.to_csv(place / "metrics.csv", index=False)
    results = load_study(folder)
    assert per_run(results)["accuracy_clusters"].isna().all()
    assert "luster" not in as_text(summarise(results), results.columns)


@pytest.mark.parametrize(
    ("value", "title", "cells"),
    [
        ("accuracy-clusters", "Accuracy, mean over clusters (%)", ["63.0\n± 38.1", "63.0\n± 38.1"]),
        ("accuracy-clients", "Accuracy, mean over clients (%)", ["73.5\n± 44.5", "73.5\n± 44.5"]),
        ("clusters", "Clusters", ["2.00\n± 0.00", "2.00\n± 0.00"]),
        ("adjusted-rand", "Adjusted Rand index of the clusters", ["1.05\n± 0.64", "1.05\n± 0.64"]),
        ("clustering-rounds", "Rounds to the final clusters", ["8.00\n1 of 2 split", "–"]),
        ("weights-kept", "Weights that count for stability (%)", ["25.0\n± 0.0", "–"]),
    ],
)
def test_grid_tables_of_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, title: str, cells: list[str]
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(grid_table, "save_all", lambda figure, _paths: drawn.append(figure))
    draw_folders("grid-table", [make_study(tmp_path)], tmp_path / "a.png", value=value)
    [figure] = drawn
    assert figure.get_suptitle().replace("\n", " ") == title
    assert texts(figure.axes[0]) == cells
    assert ("Of the seeds in which a cluster was split" in figure.get_supxlabel().replace("\n", " ")) == (
        value == "clustering-rounds"
    )


@pytest.mark.parametrize(("of", "each"), [("global", 5), ("clusters", 6), ("clients", 7)])
def test_curves_of_each_accuracy_are_named_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str, each: float
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(cost_accuracy, "save_all", lambda figure, _paths: drawn.append(figure))
    draw_folders("cost-accuracy", [make_study(tmp_path)], tmp_path / "a.png", x="round", accuracy=of)
    [box] = drawn[0].axes
    names = {"global": "Test accuracy (%)", "clusters": "Accuracy, mean over clusters (%)"}
    assert box.get_ylabel() == names.get(of, "Accuracy, mean over clients (%)")
    line = next(one for one in box.lines if len(np.asarray(one.get_xdata())) > 2)
    assert np.asarray(line.get_ydata()) == pytest.approx(each * np.arange(11))
    assert ("target 30 %" in legend(drawn[0])) == (of == "global")  # a study's target is one of the global accuracy


def test_an_accuracy_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    folder = write_clustered(tmp_path / "a", judged=False)
    with pytest.raises(
        InputError, match=r"'hicfl' has not measured the accuracy of its clients; .*'evaluate.clusters: true'"
    ):
        cost_accuracy.plot_series([folder], ("round",), accuracy="clients")
    with pytest.raises(InputError, match="unknown accuracy 'all'"):
        cost_accuracy.plot_series([folder], ("round",), accuracy="all")


def test_the_table_of_clusters(tmp_path: Path) -> None:
    runs = [write_clustered(tmp_path / "a"), write_clustered(tmp_path / "b", None, judged=False, label="fedavg")]
    table = printed.table("clusters", runs)
    assert table.data["accuracy_clusters_mean"].iloc[0] == pytest.approx(0.6)
    [section] = table.sections
    assert section.rows[0] == ("hicfl", "50.0 %", "60.0 %", "70.0 %", "2", "1.00", "8")
    assert section.rows[1] == ("fedavg", "50.0 %", "–", "–", "–", "–", "–")
    with pytest.raises(InputError, match="no run has clusters"):
        printed.table("clusters", runs[1:])


def test_a_report_shows_the_tree(tmp_path: Path) -> None:
    page = report([write_clustered(tmp_path / "a")])
    assert "how its clusters came to be" in page
    assert "accuracy, mean over clusters" in page
    assert "how its clusters came to be" not in report([write_folder(tmp_path / "b", metrics([0.1, 0.2]))])


# The tree.


def test_bands_are_as_high_as_clusters_have_clients(tmp_path: Path) -> None:
    figure = cluster_tree.plot([write_clustered(tmp_path / "a")])
    [box] = figure.axes
    assert box.get_xlabel() == "Global round"
    assert legend(figure) == ["true cluster 0", "true cluster 1"]
    at = {2: 2, 5: 2, 7: 3, 9: 2}  # how many stripes there are in these rounds
    for x, count in at.items():
        live = [b for b in bands(box) if b[1] <= x <= b[2]]
        assert len(live) == count
        for colour in LABEL_COLOURS[:2]:
            assert sum(top - bottom for c, _, _, bottom, top in live if c.lower() == colour.lower()) == pytest.approx(4)
        edges = sorted((bottom, top) for _, _, _, bottom, top in live)
        assert all(low[1] <= high[0] + 1e-9 for low, high in itertools.pairwise(edges))
    assert sorted(texts(box)) == ["2", "2", "4", "4", "4", "4", "8", "layer 3\nref. 0", "layer 7\nref. 2"]
    assert figure.legends[0].get_title().get_text().startswith("Numbers: clients of a cluster; ref.:")


def test_a_tree_against_time_and_with_one_layer(tmp_path: Path) -> None:
    figure = cluster_tree.plot([write_clustered(tmp_path / "a", TREE[:3])], "time")
    [box] = figure.axes
    assert box.get_xlabel() == "Emulated time (s)"
    assert max(b[2] for b in bands(box)) == pytest.approx(100)
    assert "ref. 2" in texts(box)
    assert "all splits by layer 7" in figure.legends[0].get_title().get_text().replace("\n", " ")
    with pytest.raises(InputError, match="'round' or 'time'"):
        cluster_tree.plot([tmp_path / "a"], "cost")


@pytest.mark.parametrize("truth", [tuple(i % 4 for i in range(20)), None])
def test_a_tree_of_twenty_leaves_is_legible(tmp_path: Path, truth: tuple[int, ...] | None) -> None:
    figure = cluster_tree.plot([write_clustered(tmp_path / "a", alone(20), truth, rounds=16)], path=tmp_path / "a.png")
    [box] = figure.axes
    leaves = [b for b in bands(box) if b[1] <= 15 <= b[2]]
    assert [b[4] - b[3] for b in leaves] == pytest.approx([1.0] * 20)
    places = [text.get_window_extent() for text in box.texts]
    for i, one in enumerate(places):
        # The white boxes may touch each other; the letters must not.
        assert not any(one.shrunk(0.9, 0.7).overlaps(other.shrunk(0.9, 0.7)) for other in places[i + 1 :])
        assert one.height >= 8 / 72 * figure.dpi * 0.6
    assert bool(figure.legends) == (truth is not None)
    if truth is None:
        assert "the clusters in which clients end" in figure.get_supxlabel().replace("\n", " ")


def test_clusters_that_cross_never_lie_on_each_other(tmp_path: Path) -> None:
    rows = tree_rows(
        (0, (), "start", 0, range(12), "", None),
        (1, (0,), "split", 3, range(6), "7", 2), (2, (0,), "split", 3, range(6, 12), "7", 2),
        (3, (1,), "split", 5, range(3), "7", 0), (4, (1,), "split", 5, range(3, 6), "7", 0),
        (5, (2,), "split", 6, range(6, 9), "7", 6), (6, (2,), "split", 6, range(9, 12), "7", 6),
        (7, (3, 6), "merge", 8, (0, 1, 2, 9, 10, 11), "", None),
        (8, (4,), "kept", 8, (3, 4, 5), "", None), (9, (5,), "kept", 8, (6, 7, 8), "", None),
    )  # fmt: skip
    [box] = cluster_tree.plot([write_clustered(tmp_path / "a", rows, (0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0))]).axes
    for x in (1.0, 4.0, 5.5, 7.0, 9.0):
        edges = sorted((bottom, top) for _, left, right, bottom, top in bands(box) if left <= x <= right)
        assert sum(top - bottom for bottom, top in edges) == pytest.approx(12)
        assert all(low[1] <= high[0] + 1e-9 for low, high in itertools.pairwise(edges))


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write_clustered(tmp_path / "a")
    for name in ("a.svg", "b.svg"):
        draw_folders("clusters", [folder], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


# Similarity.


def similarity_rows(
    at: int, layers: tuple[str, ...] = ("all", "0", "7"), within: int | None = None
) -> list[dict[str, Any]]:
    """Every two of four clients: the cosine is 0.1 times both numbers, and 1 less in layer 7."""
    return [
        {"round": at, "time_s": 0.0, "cluster": 0, "layer": layer, "client": i, "other": j,
         "cosine": 0.1 * i * j - (layer == "7")}
        for i in range(4) for j in range(i + 1, 4) for layer in layers
        if within is None or i % 2 == j % 2
    ]  # fmt: skip


def test_heat_maps_hold_the_cosines_in_the_order_of_true_clusters(tmp_path: Path) -> None:
    rows = [*similarity_rows(1), *similarity_rows(6, within=2)]
    folder = write_clustered(tmp_path / "a", TREE[:1], (1, 0, 1, 0), tables={"similarity": rows})
    figure = similarity.plot([folder], path=tmp_path / "a.png")
    *boxes, bar = figure.axes
    assert len(boxes) == 6
    assert [box.get_title() for box in boxes[:3]] == ["all parameters", "layer 0 (first)", "layer 7 (last)"]
    assert [boxes[0].get_ylabel(), boxes[3].get_ylabel()] == ["Round 1", "Round 6"]
    assert bar.get_ylabel() == "Cosine of two clients' updates"
    order = [1, 3, 0, 2]  # clients of true cluster 0, then 1
    wanted = np.array([[1.0 if i == j else 0.1 * i * j for j in order] for i in order])
    first = boxes[0].images[0]
    np.testing.assert_allclose(np.asarray(first.get_array()), wanted)
    assert all(box.images[0].get_clim() == (-1, 1) for box in boxes)
    last = boxes[5].images[0].get_array()
    np.testing.assert_allclose(np.ma.getdata(last)[0, 1], 0.3 - 1)
    assert np.ma.getmaskarray(last)[:2, 2:].all()  # of different clusters by then
    assert "Grey: not compared" in figure.get_supxlabel().replace("\n", " ")
    assert [t.get_text() for t in boxes[3].get_xticklabels()] == ["0", "1"]


def test_heat_maps_of_several_runs_are_rows_and_need_the_same_layers(tmp_path: Path) -> None:
    a = write_clustered(tmp_path / "a", TREE[:1], None, tables={"similarity": similarity_rows(1)})
    b = write_clustered(tmp_path / "b", TREE[:1], None, tables={"similarity": similarity_rows(1)}, label="mtcfl")
    figure = similarity.plot([a, b])
    assert [figure.axes[i].get_ylabel() for i in (0, 3)] == ["hicfl\nround 1", "mtcfl\nround 1"]
    assert "final clusters" in figure.get_supxlabel()
    c = write_clustered(tmp_path / "c", tables={"similarity": similarity_rows(1, ("all", "0"))}, label="other")
    with pytest.raises(InputError, match="different layers"):
        similarity.plot([a, c])
    with pytest.raises(InputError, match=r"no similarity.csv: name the rounds in 'method.record_similarity'"):
        similarity.plot([write_clustered(tmp_path / "d")])


# Stability.

SCENARIO = {"method": {"split_time": {"epsilon": 0.5, "members": "every"}, "local": {"learning_rate": 0.1}}}


def test_stability_by_layer_above_the_loss(tmp_path: Path) -> None:
    values = {"0": [0.4, 0.3, 0.2], "7": [0.2, 0.1, 0.04]}
    folder = write_clustered(tmp_path / "a", TREE[:1], tables={"stability": stability_rows(values)}, scenario=SCENARIO)
    figure = stability.plot([folder])
    upper, lower = figure.axes
    for line, (_, wanted) in zip(upper.lines, values.items(), strict=False):
        assert np.asarray(line.get_xdata()).tolist() == [3, 4, 5]
        assert np.asarray(line.get_ydata()) == pytest.approx(wanted)
    assert set(np.asarray(upper.lines[2].get_ydata(), dtype=float).tolist()) == {0.05}
    assert np.asarray(lower.lines[0].get_ydata()) == pytest.approx(2.3 * (1 - 0.05 * np.arange(11)))
    assert (upper.get_ylabel(), lower.get_ylabel()) == ("Stability\n(difference of cosines)", "Test loss (nats)")
    assert upper.get_xlim() == lower.get_xlim()
    assert legend(figure) == [
        "layer 0 (first)", "layer 7 (last)", "loss on the common test set", "stable where every member is below"
    ]  # fmt: skip


def test_stability_is_a_mean_over_seeds(tmp_path: Path) -> None:
    folders = [
        write_clustered(tmp_path / f"{seed}", TREE[:1], seed=seed, scenario={**SCENARIO, "seed": seed},
                        tables={"stability": stability_rows({"7": [0.2 + 0.1 * seed, 0.1]})})
        for seed in (0, 1)
    ]  # fmt: skip
    figure = stability.plot(folders)
    assert np.asarray(figure.axes[0].lines[0].get_ydata()) == pytest.approx([0.25, 0.1])
    assert "mean of 2 seeds" in figure.legends[0].get_title().get_text()
    decayed = {"method": {**SCENARIO["method"], "local": {"learning_rate": 0.1, "learning_rate_decay": 0.9}}}
    tables = {"stability": stability_rows({"7": [0.2, 0.1]})}
    assert stability.threshold(load_run(write_clustered(tmp_path / "d", tables=tables, scenario=decayed))) is None
    falling = {"learning_rate": 0.1, "schedule": {"kind": "exponential", "factor": 0.9}}
    scheduled = {"method": {**SCENARIO["method"], "local": falling}}
    assert stability.threshold(load_run(write_clustered(tmp_path / "s", tables=tables, scenario=scheduled))) is None


def test_stability_that_is_not_known_is_refused(tmp_path: Path) -> None:
    folder = write_clustered(tmp_path / "a", tables={"stability": stability_rows({"7": [0.2]})})
    with pytest.raises(InputError, match="knows no stability of cluster 3"):
        stability.plot([folder], 3)
    with pytest.raises(InputError, match=r"no stability.csv"):
        stability.plot([write_clustered(tmp_path / "b")])


# Trials.


def trial_rows(purities: list[float], ripe: int | None) -> list[dict[str, Any]]:
    return [
        {"round": k + 1, "time_s": 0.0, "cluster": 0, "ripe": int(ripe is not None and k + 1 >= ripe), "agreed": 0,
         "layer": "7", "reference": 0, "like": 4, "unlike": 4, "purity": p, "adjusted_rand": 0.0}
        for k, p in enumerate(purities)
    ]  # fmt: skip


def test_trials_tell_the_means_before_and_after(tmp_path: Path) -> None:
    rows = trial_rows([0.5, 0.75, 1.0, 0.875], ripe=3)
    folder = write_clustered(tmp_path / "a", TREE[:1], tables={"trials": rows}, rounds=4)
    tried = trials.trial(load_run(folder))
    assert (tried.ripe, tried.before, tried.after) == (3, 0.625, 0.9375)
    figure = trials.plot([folder])
    [box] = figure.axes
    assert box.get_title() == "before 62.5 %, after 93.8 %"
    assert np.asarray(box.lines[0].get_ydata()) == pytest.approx([50, 75, 100, 87.5])
    assert np.asarray(box.lines[1].get_xdata()).tolist() == [3, 3]
    means = [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in box.lines[2:]]
    assert means == [([1, 3], [62.5, 62.5]), ([3, 4], [93.75, 93.75])]
    assert legend(figure) == ["purity", "first stable round", "mean before and after"]
    assert (box.get_ylabel(), box.get_xlabel()) == ("Purity of the split (%)", "Global round")


def test_trials_of_seeds_that_are_never_stable(tmp_path: Path) -> None:
    def folder(seed: int, ripe: int | None) -> Path:
        tables = {"trials": trial_rows([0.5, 0.5 + 0.25 * seed], ripe)}
        return write_clustered(tmp_path / f"{seed}", TREE[:1], tables=tables, seed=seed, scenario={"seed": seed})

    both = [folder(0, None), folder(1, 2)]
    figure = trials.plot(both)
    assert figure.axes[0].get_title() == "before 50.0 %, after 75.0 %; 1 of 2 seeds never stable"
    assert legend(figure)[1] == "a seed"
    assert trials.plot(both[:1]).axes[0].get_title() == "before 50.0 %; never stable"
    assert math.isnan(trials.trial(load_run(both[0])).after)


def test_trials_need_trials_and_true_clusters(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no trials.csv: say 'method.trial: true'"):
        trials.plot([write_clustered(tmp_path / "a")])
    rows = [{**row, "purity": ""} for row in trial_rows([0.5, 0.5], None)]
    with pytest.raises(InputError, match="no true clusters with which"):
        trials.plot([write_clustered(tmp_path / "b", tables={"trials": rows})])
