"""Methods of a user's own that use the session in a wrong way: the run fails and says where and how."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario.command import hfl

METHOD = '''
from emulator.extend import MethodParams, Session, Steps, Tag, methods

@methods.register("own", MethodParams)
def own(session: Session, params: MethodParams) -> Steps:
    """Waits."""
    model = session.lab.initial()
    session.begin(model)
    for t in range(1, 10):
        yield session.env.timeout(1.0)
        if session.end_round(t, model):
            return
'''
RUN = (
    "run",
    "s.yaml",
    "--no-training",
    "--set",
    "method={kind: own}",
    "--out",
    "out",
    "--no-memo",
    "--plugin",
    "own.py",
)


def test_the_method_itself_is_right(plugin_home: Path) -> None:
    (plugin_home / "own.py").write_text(METHOD)
    assert hfl(*RUN).code == 0


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("range(1, 10)", "range(1, 2)", "own.py:4): it returned before the run was to stop; go on until 'end_round'"),
        ("    session.begin(model)\n", "", "call session.begin(model) before the first round ends"),
        ("end_round(t, model)", "end_round(3 - t, model)", "round 1 cannot end after round 2; rounds count up from 1"),
        ("            return", "            continue", "the run is over (stopped by rounds): return where 'end_round'"),
        (
            "yield session.env.timeout(1.0)",
            'yield session.round_trip(0, "cloud", iter(()), Tag("x"))',
            "a longer piece of work is done with 'yield from'",
        ),
    ],
)
def test_a_wrong_use_fails_the_run_and_says_how_it_would_be_right(
    plugin_home: Path, was: str, now: str, said: str
) -> None:
    assert was in METHOD
    (plugin_home / "own.py").write_text(METHOD.replace(was, now))
    done = hfl(*RUN, "--set", "stop.rounds=3")
    assert done.code == 1
    assert "method 'own'" in done.err
    assert said in done.err
