"""The study language: which runs a file means, what they are called, and what is said of files that mean none."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario.command import TINY, Done, hfl
from study_samples import STUDY, write_study

from emulator.errors import ScenarioError
from emulator.scenario import bundled as bundled_scenarios
from emulator.study.expand import Change, ordered
from emulator.study.load import LoadedStudy, bundled, load
from emulator.study.names import file_names, run_name, short_names, text_of
from emulator.yamlfile import Document, Mark


def study(folder: Path, text: str, *changes: str, scenario: str = TINY) -> LoadedStudy:
    return load(write_study(folder, text, scenario), changes)


def complaint(folder: Path, text: str, *changes: str, scenario: str = TINY) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        study(folder, text, *changes, scenario=scenario)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


# Which runs.


def test_every_combination_is_a_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    loaded = study(tmp_path, STUDY)
    assert loaded.columns == ("variant", "data.partition.alpha")
    assert [run.name for run in loaded.runs] == [
        f"{variant}_alpha-{alpha}_seed-{seed}"
        for variant, alpha, seed in itertools.product(("two", "one"), ("0.3", "3"), (0, 1))
    ]
    for run in loaded.runs:
        scenario = run.loaded.scenario
        assert scenario.stop.rounds == 3
        assert scenario.data.partition.params.alpha == run.point["data.partition.alpha"]
        assert scenario.seed == run.seed
        assert scenario.method.params.group_rounds == (2 if run.variant == "two" else 1)
        assert run.method == ("hierfavg" if run.variant == "two" else "fedavg")
        assert (scenario.output.plot, scenario.output.against) == (False, ())
        assert scenario.name == "tiny"


def test_without_anything_varied_there_is_the_scenario_itself(tmp_path: Path) -> None:
    (run,) = study(tmp_path, "name: x\nscenario: tiny.yaml\n").runs
    assert (run.name, run.variant, run.point, run.seed) == ("seed-3", "", {}, 3)
    assert [r.seed for r in study(tmp_path, "name: x\nscenario: tiny.yaml\nseeds: [7, 5]\n").runs] == [7, 5]


def test_a_study_without_a_name_has_that_of_its_file_and_so_has_its_scenario(tmp_path: Path) -> None:
    file = write_study(tmp_path, "scenario: tiny.yaml\n", TINY.replace("name: tiny\n", ""))
    loaded = load(file)
    assert (loaded.study.name, loaded.runs[0].loaded.scenario.name) == ("study", "tiny")


def test_a_scenario_may_stand_in_the_study_or_be_a_ready_one(tmp_path: Path) -> None:
    inside = "name: my study\nscenario:\n" + "".join(f"  {line}\n" for line in TINY.strip().splitlines()[1:])
    (run,) = study(tmp_path, inside).runs
    assert (run.loaded.scenario.name, run.loaded.scenario.topology.clients) == ("my study", 8)
    (run,) = study(tmp_path, "name: x\nscenario: quickstart\n").runs
    assert run.loaded.scenario.topology.clients == 30
    assert run.loaded.scenario.output.against == ()
    (tmp_path / "quickstart").write_text(TINY)  # a file goes before a ready scenario
    (run,) = study(tmp_path, "name: x\nscenario: quickstart\n").runs
    assert run.loaded.scenario.topology.clients == 8


def test_what_is_set_for_all_holds_for_other_methods_too_unless_they_say_otherwise(tmp_path: Path) -> None:
    text = """
name: x
scenario: tiny.yaml
set: {method.local.learning_rate: 0.5, method.local.epochs: 3, method.group_rounds: 4}
variants:
  as it is:
  other: {method: hierfavg}
  own: {method: {preset: hierfavg, local: {epochs: 7}}}
  later: {method.group_rounds: 1, method: fedavg}
"""
    by_name = {run.variant: run.loaded.scenario.method.params for run in study(tmp_path, text).runs}
    assert [p.local.params.learning_rate for p in by_name.values()] == [0.5] * 4
    assert [p.local.params.epochs for p in by_name.values()] == [3, 3, 7, 3]
    assert [p.group_rounds for p in by_name.values()] == [4, 4, 4, 1]
    assert [p.local.params.batch_size for p in by_name.values()][:2] == [4, 32]  # the scenario's own; the default


def change(key: str, value: object) -> Change:
    return Change(key, Document("f", value, {(): Mark("f", 1, 1)}, {(): Mark("f", 1, 1)}))


def test_the_last_layer_counts_and_sections_come_before_what_is_in_them() -> None:
    layers = [
        [change("a.b.c", 1), change("a.x", 1), change("seed", 0)],
        [change("a", {"b": {"c": 2}})],
        [change("a.b.d", 3), change("seed", 5)],
    ]
    assert [(c.key, c.given.data) for c in ordered(layers)] == [
        ("a", {"b": {"c": 2}}),
        ("seed", 5),
        ("a.x", 1),
        ("a.b.d", 3),
    ]


def test_a_change_in_a_section_of_one_run_does_not_reach_another(tmp_path: Path) -> None:
    text = """
name: x
scenario: tiny.yaml
variants: {v: {method: {preset: hierfavg, local: {batch_size: 4}}}}
grid: {method.local.epochs: [1, 2, 3]}
"""
    runs = study(tmp_path, text).runs
    assert [r.loaded.scenario.method.params.local.params.epochs for r in runs] == [1, 2, 3]
    assert study(tmp_path, text).document.data["variants"]["v"]["method"]["local"] == {"batch_size": 4}


def test_values_may_have_names(tmp_path: Path) -> None:
    text = """
name: x
scenario: tiny.yaml
grid:
  topology.links.access:
    slow line: {up: 1 Mbit/s, down: 2 Mbit/s}
    fast line: {up: 10 Mbit/s, down: 20 Mbit/s}
  data.partition: [iid, {kind: dirichlet, alpha: 0.5}]
  model.hidden: [[8], [8, 4]]
"""
    loaded = study(tmp_path, text)
    assert [run.name for run in loaded.runs][:5] == [
        "access-slow-line_partition-iid_hidden-8_seed-3",
        "access-slow-line_partition-iid_hidden-8-4_seed-3",
        "access-slow-line_partition-dirichlet-alpha-0.5_hidden-8_seed-3",
        "access-slow-line_partition-dirichlet-alpha-0.5_hidden-8-4_seed-3",
        "access-fast-line_partition-iid_hidden-8_seed-3",
    ]
    assert loaded.runs[4].point == {
        "topology.links.access": "fast line", "data.partition": "iid", "model.hidden": "8",
    }  # fmt: skip
    assert loaded.runs[4].loaded.scenario.topology.links.access.up == 10e6


def test_set_on_the_command_line_comes_last_but_leaves_what_is_varied(tmp_path: Path) -> None:
    loaded = study(tmp_path, STUDY, "stop.rounds=1", "method.local.epochs=2")
    assert {run.loaded.scenario.stop.rounds for run in loaded.runs} == {1}
    assert {run.loaded.scenario.method.params.local.params.epochs for run in loaded.runs} == {2}
    for wrong, said in {
        "method=fedavg": "the study varies 'method.group_rounds'",
        "data={}": "the study varies 'data.partition.alpha'",
        "data.partition.alpha=3": "the study varies 'data.partition.alpha'",
        "seed=3": "the seeds of a study stand in 'seeds'",
        "rounds": "write it as key.path=value, for example --set stop.rounds=20",
    }.items():
        assert complaint(tmp_path, STUDY, wrong) == [f"--set {wrong}: {said}"]
    assert complaint(tmp_path, STUDY, "stop.round=1") == [
        "--set stop.round=1: stop.round: unknown key; did you mean 'rounds'?"
    ]


# Names.


def test_short_names_are_the_shortest_that_are_different() -> None:
    assert short_names(["data.partition.alpha", "stop.rounds"]) == {
        "data.partition.alpha": "alpha",
        "stop.rounds": "rounds",
    }
    links = ["topology.links.access.up", "topology.links.backhaul.up", "method"]
    assert list(short_names(links).values()) == ["access.up", "backhaul.up", "method"]
    assert short_names(["variant", "a.variant"]) == {"variant": "variant", "a.variant": "a.variant"}


def test_values_as_people_read_them() -> None:
    assert [text_of(v) for v in (0.1, 1.0, 100000, 1e-7, True, None, "20 Mbit/s", [64, 32], 0.30000000000000004)] == [
        "0.1", "1", "100000", "1e-07", "true", "none", "20 Mbit/s", "64, 32", "0.30000000000000004",
    ]  # fmt: skip
    assert text_of({"kind": "dirichlet", "alpha": 0.1}) == "dirichlet, alpha 0.1"


@given(st.lists(st.text(max_size=60), unique=True, min_size=1, max_size=8))
def test_different_texts_have_different_names_that_any_file_system_takes(texts: list[str]) -> None:
    names = file_names(texts)
    assert len({name.lower() for name in names.values()}) == len(texts)
    for name in names.values():
        assert name
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-")
        assert len(name) <= 50


def test_a_long_name_is_cut_and_stays_unique() -> None:
    parts = {f"key-{i}": "x" * 40 for i in range(6)}
    names = {run_name("v", parts, str(seed)) for seed in range(5)}
    assert len(names) == 5
    assert {len(name) for name in names} == {200}


# What is wrong.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["study.yaml: is empty; a study has the keys 'name', 'notes', 'scenario', 'set', 'variants', 'grid', "
              "'seeds', 'target', 'baseline', 'figures'"]),
        ("name: x\n", ["study.yaml:1:1: give a 'scenario' to run, or run folders to replay in 'whatif.runs'"]),
        (TINY, ["study.yaml:2:1: this is a scenario, not a study; run it with 'hfl run', or name it as the 'scenario' "
                "of a study"]),
        ("name: x\nscenario: tiny.yml\n",
         ["study.yaml:2:11: scenario: there is no file 'tiny.yml' and no such bundled scenario; bundled scenarios: "]),
        ("name: x\nscenario: quickstrat\n",
         ["study.yaml:2:11: scenario: there is no file 'quickstrat' and no such bundled scenario; "
          "did you mean 'quickstart'?"]),
        ("name: x\nscenario: 3\nsed: {}\nseeds: [1, x]\ngrid: {a: 3, b: []}\nvariants: {}\n",
         ["study.yaml:2:11: scenario: expected the name of a scenario, a path beside this file, or a whole scenario",
          "study.yaml:3:1: sed: unknown key; did you mean 'seeds'?",
          "study.yaml:4:12: seeds[1]: expected a whole number, not 'x'",
          "study.yaml:5:11: grid.a: expected a list of values, or a mapping from names to values",
          "study.yaml:5:17: grid.b: expected a list of values, or a mapping from names to values",
          "study.yaml:6:11: variants: has too few entries; it needs at least 1"]),
        ("name: x\nscenario: tiny.yaml\ntarget: 80\n",
         ["study.yaml:3:9: target: is a share above 0, and at most 1 (it is 80); for 80 per cent write 0.8"]),
        ("name: x\nscenario: tiny.yaml\nvariants: {a: fedavg}\nset: 3\nseeds: 0\n",
         ["study.yaml:3:15: variants.a: expected a mapping from scenario keys to values, such as {stop.rounds: 20}",
          "study.yaml:4:6: set: expected a mapping from scenario keys to values, such as {stop.rounds: 20}",
          "study.yaml:5:8: seeds: expected a list of seeds, or how many there are to be, from 1 up"]),
        ("name: x\nscenario: tiny.yaml\nset: {seed: 3, stop..rounds: 1, output.against: [fedavg]}\n"
         "grid: {data.partition.alpha: [1, 1.0], data.partition: [iid]}\nseeds: [1, 2, 1]\n",
         ["study.yaml:3:7: set.seed: the seeds of a study stand in 'seeds'",
          "study.yaml:3:16: set.stop..rounds: expected a key of the scenario, such as 'stop.rounds'",
          "study.yaml:3:33: set.output.against: a study runs its variants and nothing beside them",
          "study.yaml:4:8: grid.data.partition.alpha: lies in 'data.partition', which the grid varies too",
          "study.yaml:4:34: grid.data.partition.alpha[1]: the value '1' stands twice",
          "study.yaml:5:15: seeds[2]: the seed 1 stands twice"]),
        ("name: x\nscenario: tiny.yaml\nvariants: {a: {}, b: {stop.rounds: 1}}\nbaseline: {variant: c, seed: 0, alpha: 1}\n",
         ["study.yaml:4:21: baseline.variant: no run has 'c' there; there are: 'a', 'b'",
          "study.yaml:4:24: baseline.seed: name something that the study varies beside the seed",
          "study.yaml:4:33: baseline.alpha: 'alpha' is nothing that this study varies; "]),
        ("name: x\nscenario: tiny.yaml\ngrid: {stop.rounds: [1, 2, 3], a: [1, 2, 3, 4, 5]}\nseeds: 1000\n",
         ["study.yaml:1:1: these would be 15,000 runs; a study has at most 10,000"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_study_is_said_with_its_place(
    tmp_path: Path, text: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        load("study.yaml")
    found = str(caught.value).split("\n")
    assert [line[: len(expected)] for line, expected in zip(found, said, strict=True)] == said


def test_what_is_wrong_with_scenarios_is_said_once_for_all_runs(tmp_path: Path) -> None:
    text = """
name: x
scenario: tiny.yaml
set: {evaluate.evry: 5}
variants:
  a: {method: {preset: group-fel, formation: {min_siez: 3}}}
  b: {method: hierfagv}
grid:
  data.partition.alpha: [0.1, low]
  topology.edges: [2, 9]
"""
    assert complaint(tmp_path, text, scenario=TINY.replace("seed: 3", "sede: 3")) == [
        "study.yaml:4:7: evaluate.evry: unknown key; did you mean 'every'?",
        "study.yaml:6:47: method.formation.min_siez: unknown key; did you mean 'min_size'? "
        "(in 4 of 8 runs, such as 'a_alpha-0.1_edges-2_seed-0')",
        "study.yaml:7:15: method: unknown preset 'hierfagv'; did you mean 'hierfavg'? "
        "(in 4 of 8 runs, such as 'b_alpha-0.1_edges-2_seed-0')",
        "study.yaml:9:31: data.partition.alpha: expected a number, not 'low' "
        "(in 4 of 8 runs, such as 'a_alpha-low_edges-2_seed-0')",
        "tiny.yaml:3:1: sede: unknown key; did you mean 'seed'?",
    ]


def test_what_does_not_fit_together_in_one_run_names_the_run(tmp_path: Path) -> None:
    text = "name: x\nscenario: tiny.yaml\ngrid: {topology.edges: [2, 9]}\nseeds: [1]\n"
    assert complaint(tmp_path, text) == [
        "study.yaml:3:28: topology.edges: 9 edges for 8 clients would leave edges without any (in the run 'edges-9_seed-1')"
    ]
    text = "name: x\nscenario: tiny.yaml\ngrid: {seed.x: [1, 2]}\nseeds: [1]\n"
    assert complaint(tmp_path, text)[0] == "study.yaml:3:17: seed.x: 'seed' is no section (in the run 'x-1_seed-1')"


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ("cost-acuracy", "11: figures[0]: unknown figure 'cost-acuracy'; did you mean 'cost-accuracy'?"),
        ("{kind: cost-accuracy, x: tim}",
         "[0].x[0]: expected 'cost', 'time', 'bytes', 'energy', 'money', 'carbon', 'round' or 'epsilon', not 'tim'"),
        ("{kind: cost-accuracy, bye: variant}", "[0].bye: unknown key; did you mean 'by'?"),
        ("{kind: cost-accuracy, by: alfa}",
         "[0].by: 'alfa' is nothing that this study varies; did you mean 'alpha'?"),
        ("{kind: grid-table, rows: variant, columns: seed}",
         "[0].columns: cells are means over the seeds; name something else that the study varies"),
        ("{kind: cost-accuracy, panels: alpha, x: [cost, time]}",
         "[0].panels: give a single 'x' beside 'panels', or leave 'panels' out"),
        ("{kind: cost-accuracy, by: variant}",
         "[0]: the runs 'two_alpha-0.3_seed-0' and 'two_alpha-3_seed-0' would be taken for one; say what tells them apart"),
        ("{kind: cost-accuracy, by: variant, where: {alpha: 7}}", "[0].where: no run is of these values"),
        ("{kind: grid-table, where: {alpha: 0.3}, file: a.jpg}",
         "[0].file: 'a.jpg' is no plain file name that ends in one of .png, .svg, .pdf"),
        ("{kind: grid-table, file: x/a.png}",
         "[0].file: 'x/a.png' is no plain file name that ends in one of .png, .svg, .pdf"),
        ("{kind: grid-table, file: a.png}, {kind: grid-table, file: [b.png, a.png]}",
         "[1].file: 'a.png' is drawn by figure 1 already"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_figures(tmp_path: Path, figure: str, said: str) -> None:
    (found,) = complaint(tmp_path, f"{STUDY}figures: [{figure}]\n")
    assert found.startswith("study.yaml:11:")
    assert found.endswith(said)


@pytest.mark.parametrize(
    "figure",
    [
        "{kind: cost-accuracy, by: [variant, alpha]}",
        "{kind: cost-accuracy, by: method, panels: data.partition.alpha}",
        "{kind: cost-accuracy, where: {alpha: 0.3}, x: [cost, time], band: range, file: [a.png, a.pdf]}",
        "grid-table",
        "{kind: grid-table, rows: alpha, value: cost-to-target}",
    ],
)
def test_figures_that_make_sense(tmp_path: Path, figure: str) -> None:
    assert len(study(tmp_path, f"{STUDY}figures: [{figure}]\n").study.figures) == 1


# Ready studies, and files of the other kind.


def test_ready_studies_are_sound_and_no_scenarios() -> None:
    known = bundled()
    assert "studies/quickstart" in known
    assert not set(known) & set(bundled_scenarios())
    for name in known:
        loaded = load(name)
        assert loaded.study.notes, f"{name} says nothing about itself"
        assert loaded.study.figures, f"{name} draws nothing"


def test_a_study_where_a_scenario_is_wanted_and_the_reverse(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    said = "this is a study, not a scenario; run it with 'hfl study', check it with 'hfl study --dry-run'"
    assert hfl("run", path) == Done(2, "", f"error: {path}:2:1: {said}\n")
    assert hfl("run", "studies/quickstart").err.endswith(f"{said}\n")
    said = "this is a scenario, not a study; run it with 'hfl run', or name it as the 'scenario' of a study"
    assert hfl("study", "quickstart").err.endswith(f"{said}\n")
    assert hfl("study", "quikstart").err == (
        "error: quikstart: there is no such file and no such bundled study; did you mean 'studies/quickstart'?\n"
    )


def test_validate_takes_studies_too(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    assert hfl("validate", path) == Done(
        0, f"{path}: valid: study 'tiny study', 8 runs: 2 variants x 2 alpha x 2 seeds\n", ""
    )
    done = hfl("validate", "studies/quickstart", "--set", "stop.rounds=0")
    assert (done.code, done.err) == (2, "error: --set stop.rounds=0: stop.rounds: must be at least 1 (it is 0)\n")
