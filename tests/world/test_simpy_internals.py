"""What is done with SimPy's internals, beside the public way: same order, same values, same instants."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import simpy
from simpy.events import URGENT, EventPriority

import emulator
from emulator.world import simpy_internals
from emulator.world.simpy_internals import generator_of, happen, happens_at, queued, replace_error, succeed_after

Seen = list[tuple[float, object, object]]  # when, what, with which value
Make = Callable[[simpy.Environment, float, object], simpy.Event]  # an event so many seconds from now


def timeout(env: simpy.Environment, delay_s: float, value: object) -> simpy.Event:
    return env.timeout(delay_s, value)


def at_instant(env: simpy.Environment, delay_s: float, value: object) -> simpy.Event:
    return happens_at(env, env.now + delay_s, value)


def later(env: simpy.Environment, delay_s: float, value: object) -> simpy.Event:
    event = env.event()
    succeed_after(event, delay_s)
    return event


def watch(env: simpy.Environment, seen: Seen, name: object, event: simpy.Event) -> None:
    """Notes an event when it happens: by a callback, and by a process that waits for it."""

    def wait() -> Generator[simpy.Event, Any, None]:
        value = yield event
        seen.append((env.now, ("process", name), value))

    event.callbacks.append(lambda event: seen.append((env.now, ("callback", name), (event.ok, event.value))))
    env.process(wait())


def played(ways: list[Make], seed: int) -> Seen:
    """Chains of events at instants that meet again and again, each made in a way that is drawn."""
    env, seen = simpy.Environment(), []  # type: simpy.Environment, Seen
    choose, draw = random.Random(0), random.Random(seed)

    def chain(name: int) -> Generator[simpy.Event, Any, None]:
        for step in range(20):
            make = choose.choice(ways)
            event = make(env, draw.choice([0.0, 0.25, 0.5, 1.0]), True)
            watch(env, seen, (name, step), event)
            if draw.random() < 0.3:
                yield event | env.timeout(0.25)
            else:
                yield event

    for name in range(5):
        env.process(chain(name))
    env.run()
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_events_at_one_instant_come_in_the_order_of_timeouts(seed: int) -> None:
    public = played([timeout], seed)
    assert len(public) == 200
    assert played([at_instant], seed) == public
    assert played([later], seed) == public
    assert played([timeout, at_instant, later], seed) == public


def test_what_is_urgent_comes_before_and_what_is_last_after_all_else() -> None:
    env, seen = simpy.Environment(), []  # type: simpy.Environment, list[str]
    events = {"last": env.event(), "normal": happens_at(env, 0.0), "also": env.timeout(0.0), "first": env.event()}
    succeed_after(events["last"], 0.0, EventPriority(5))
    succeed_after(events["first"], 0.0, URGENT)
    for name, event in events.items():
        event.callbacks.append(lambda _, name=name: seen.append(name))  # type: ignore[misc]
    env.run()
    assert seen == ["first", "normal", "also", "last"]


def test_instants_are_kept_exactly_where_delays_are_rounded() -> None:
    draw = random.Random(1)
    rounded = 0
    for _ in range(200):
        now_s, instant_s = sorted(draw.uniform(0, 1000) for _ in range(2))
        env = simpy.Environment(now_s)
        env.run(happens_at(env, instant_s))
        assert env.now == instant_s
        env = simpy.Environment(now_s)
        env.run(env.timeout(instant_s - now_s))
        assert env.now == pytest.approx(instant_s, rel=1e-12)
        rounded += env.now != instant_s
    assert rounded > 0  # otherwise there would be no need for it


def test_instants_that_never_come_and_instants_that_are_over() -> None:
    env = simpy.Environment(5.0)
    never = happens_at(env, float("inf"))
    env.run()
    assert not never.triggered
    with pytest.raises(ValueError, match=r"4\.0 s is over: it is 5\.0 s"):
        happens_at(env, 4.0)


def test_an_event_that_happens_at_once() -> None:
    """Whoever waits for it sees what `succeed` would show it, but before anything else of this instant."""

    def seen_with(let_happen: Callable[[simpy.Event, object], object]) -> Seen:
        env, seen = simpy.Environment(), []  # type: simpy.Environment, Seen
        event = env.event()
        watch(env, seen, "event", event)
        (event | env.timeout(3.0)).callbacks.append(lambda _: seen.append((env.now, "either", None)))
        env.timeout(1.0).callbacks.append(lambda _: let_happen(event, "value"))
        env.timeout(1.0).callbacks.append(lambda _: seen.append((env.now, "other", None)))
        env.run()
        assert (event.ok, event.value, event.triggered, event.processed) == (True, "value", True, True)
        watch(env, seen, "late", env.process(wait_for(event)))  # which does not wait for what has happened
        env.run()
        return seen

    def wait_for(event: simpy.Event) -> Generator[simpy.Event, Any, object]:
        return (yield event)

    ours, public = seen_with(happen), seen_with(lambda event, value: event.succeed(value))
    other = (1.0, "other", None)
    assert [s for s in ours if s != other] == [s for s in public if s != other]
    assert ours[:3] == [(1.0, ("callback", "event"), (True, "value")), (1.0, ("process", "event"), "value"), other]
    assert public[0] == other


def test_the_queue_is_the_order_in_which_events_happen() -> None:
    env, draw = simpy.Environment(), random.Random(2)
    happened: list[tuple[float, simpy.Event]] = []
    for _ in range(50):
        event = draw.choice([timeout, at_instant, later])(env, draw.choice([0.0, 1.0, 2.0]), True)
        event.callbacks.append(lambda event: happened.append((env.now, event)))
    foreseen = list(queued(env))
    env.run()
    assert foreseen == happened
    assert not list(queued(env))


def test_another_error_takes_the_place_of_the_first() -> None:
    env = simpy.Environment()
    failed = env.event()

    def wait() -> Generator[simpy.Event, Any, str]:
        try:
            yield failed
        except KeyError as error:
            return str(error)
        return ""

    waiting = env.process(wait())
    failed.fail(ValueError("first"))
    replace_error(failed, KeyError("second"))
    assert not failed.ok
    env.run()
    assert waiting.value == "'second'"


def test_the_generator_of_a_process() -> None:
    env = simpy.Environment()

    def steps() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(1.0)

    generator = steps()
    assert generator_of(env.process(generator)) is generator


def private_names() -> set[str]:
    """The attributes that SimPy's clock, events and processes keep to themselves."""
    env = simpy.Environment()

    def steps() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(1.0)

    things = (env, env.event(), env.timeout(1.0), env.process(steps()), env.timeout(1.0) | env.timeout(2.0))
    names = {name for thing in things for name in dir(thing)} | set(simpy.Event.__annotations__)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_nobody_else_touches_them() -> None:
    private = private_names()
    assert {"_queue", "_eid", "_ok", "_value", "_generator", "_now"} <= private
    ours = Path(simpy_internals.__file__)
    found = []
    for file in sorted(Path(emulator.__file__).parent.rglob("*.py")):
        tree = ast.parse(file.read_text())
        uses_simpy = any("simpy" in name for name in imported(tree))
        if file == ours or not uses_simpy:
            continue
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in private]
        own = {a.attr for a in attributes if isinstance(a.ctx, ast.Store) and ast.unparse(a.value) == "self"}
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        others = [a for a in attributes if ast.unparse(a.value) != "self" or a.attr not in own]
        found += [f"{file}:{a.lineno}: {ast.unparse(a)}" for a in others]
    assert not found


def imported(tree: ast.AST) -> set[str]:
    """The modules that a module imports."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
