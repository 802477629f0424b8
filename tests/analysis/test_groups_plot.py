from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from analysis.plots.groups import LABEL_COLOURS, RuleGroups, plot
from emulator.errors import InputError


def rule(
    label: str, groups: int = 12, labels: int = 10, seed: int = 0, overhead_s: float = 2.0, cov: float = 0.5
) -> RuleGroups:
    counts = np.random.default_rng(seed).integers(0, 90, (groups, labels))
    return RuleGroups(label, counts, 60 / groups, cov, overhead_s)


RULES = [rule("random", cov=0.9), rule("cdg", seed=1, cov=0.88), rule("cov", seed=2, cov=0.4, overhead_s=2.3)]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_groups_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    plot(RULES[:2], tmp_path / f"a.{ending}", "title")
    plot(RULES[:2], tmp_path / f"b.{ending}", "title")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_a_bar_is_the_labels_of_a_group() -> None:
    figure = plot(RULES)
    assert len(figure.axes) == 4
    for box, each in zip(figure.axes, RULES, strict=False):
        steps = [patch.get_data() for patch in box.patches if isinstance(patch, StepPatch)]
        heights = np.array([np.asarray(step.values) - np.asarray(step.baseline) for step in steps])
        np.testing.assert_array_equal(heights.T, each.label_counts)
        assert box.get_ylim()[1] >= max(int(r.label_counts.sum(axis=1).max()) for r in RULES)
    assert [box.get_title() for box in figure.axes[:3]] == [
        "random: mean CoV 0.90", "cdg: mean CoV 0.88", "cov: mean CoV 0.40"
    ]  # fmt: skip
    assert figure.axes[0].get_xlabel() == "12 groups of 5.0 clients on average"


def test_the_last_panel_shows_what_balance_costs() -> None:
    points = plot(RULES).axes[-1]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points.lines] == [(2, 0.9), (2, 0.88), (2.3, 0.4)]  # type: ignore[index]
    assert points.get_xlim()[0] == points.get_ylim()[0] == 0
    assert points.get_xlabel() == "Overhead of a client\nin a group round (s)"
    boxes = [text.get_window_extent() for text in points.texts]
    assert sorted(text.get_text() for text in points.texts) == ["cdg", "cov", "random"]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])
    free = [RuleGroups(r.label, r.label_counts, r.mean_size, r.mean_cov, 0.0) for r in RULES]
    assert plot(free).axes[-1].get_xlabel() == "Mean group size (clients)"


def test_one_rule_has_one_panel_and_many_labels_no_legend() -> None:
    alone = plot(RULES[:1])
    assert len(alone.axes) == 1
    [legend] = alone.legends
    assert len(legend.get_texts()) == 10
    many = plot([rule("cov", groups=300, labels=35)])
    assert many.legends == []
    colours = [patch.get_facecolor() for patch in many.axes[0].patches]
    assert colours[0] == colours[10] != colours[1]


def test_groups_without_samples_and_infinite_covs_can_be_drawn(tmp_path: Path) -> None:
    empty = RuleGroups("single", np.zeros((3, 4), dtype=np.int64), 1.0, float("inf"), 1.0)
    assert len(plot([empty, rule("cov", labels=4)], tmp_path / "a.png").axes) == 3


def test_the_colours_of_neighbours_differ_in_lightness() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    levels = [lightness(colour) for colour in LABEL_COLOURS]
    assert len(set(LABEL_COLOURS)) == 10
    assert all((max(a, b) + 0.05) / (min(a, b) + 0.05) > 1.5 for a, b in itertools.pairwise([*levels, levels[0]]))


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one formation rule"):
        plot([])
    with pytest.raises(InputError, match="must end in"):
        plot(RULES, tmp_path / "a.jpg")
