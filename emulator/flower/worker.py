"""A process that runs clients' code of an app, from the inside: one message at a time, with random streams of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.flower.replies import Reply

LOAD, RAISED = 1, 2  # error codes of Flower
RUN_ID = 1
SERVER_NODE = 1  # the id of the server, as in Flower


@dataclass(frozen=True)
class Job:
    """A message for a client and what its code may see beside it. ``seed`` begins its random streams."""

    content: bytes
    is_error: bool
    message_type: str
    group_id: str
    node_id: int
    node_config: dict[str, Any]
    run_config: dict[str, Any]
    state: bytes
    seed: int


@dataclass(frozen=True)
class Code:
    """Where a client app stands: ``module:object`` and the folder from which it is imported; whether operations are counted."""

    reference: str
    folder: str
    counting: bool


_loaded: dict[str, Any] = {}


def begin(code: Code) -> None:
    """Makes a process ready: it ignores the keyboard, prints to where errors go, and knows the app."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    _loaded.clear()
    _loaded["code"] = code
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process where the one that started it is gone, killed perhaps."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _app(code: Code) -> Any:
    if "app" not in _loaded:
        from flwr.clientapp import ClientApp
        from flwr.clientapp.client_app import LoadClientAppError
        from flwr.supercore.object_ref import load_app

        if code.counting:
            import torch

            torch.set_num_threads(1)
        app = load_app(code.reference, LoadClientAppError, Path(code.folder))
        if not isinstance(app, ClientApp):
            raise LoadClientAppError(f"'{code.reference}' is a {type(app).__name__}, and a ClientApp is wanted")
        _loaded["app"] = app
    return _loaded["app"]


def seed_all(seed: int) -> None:
    """Begins the process's own random streams anew: of ``random``, of numpy, and of torch where it is there."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def work(job: Job) -> Reply:
    """What the app's client code makes of a message. What it raises becomes an error reply with its traceback."""
    code: Code = _loaded["code"]
    try:
        app = _app(code)
    except BaseException as error:  # noqa: BLE001 (whatever importing an app raises)
        return _failed(LOAD, error, job.state)
    from flwr.app import Context, Message, RecordDict
    from flwr.app.metadata import Metadata

    from emulator.flower.codec import body_of, records_from_bytes, records_to_bytes

    state = records_from_bytes(job.state) if job.state else RecordDict()
    context = Context(RUN_ID, job.node_id, dict(job.node_config), state, dict(job.run_config))
    now = time.time()
    metadata = Metadata(RUN_ID, "message", SERVER_NODE, job.node_id, "", job.group_id, now, 10.0**6, job.message_type)
    metadata.delivered_at = ""
    message = Message(content=records_from_bytes(job.content), metadata=metadata)
    seed_all(job.seed)
    started = time.perf_counter()
    with counting(code.counting) as counted:
        try:
            reply = app(message, context)
            if not isinstance(reply, Message):
                raise TypeError(f"a ClientApp must return a Message, and this one returns a {type(reply).__name__}")
            if dict(context.run_config) != job.run_config:
                raise ValueError("the run_config of a Context cannot be changed, and this app changes it")
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return _failed(RAISED, error, job.state)
    host_s = time.perf_counter() - started
    said = body_of(reply)
    flops, steps = ({}, 0) if counted is None else (dict(counted.flops), counted.steps)
    return Reply(said.data, said.is_error, records_to_bytes(context.state), flops, steps, host_s)


@contextlib.contextmanager
def counting(wanted: bool) -> Any:
    """A block in which torch's operations are counted, with the steps of optimisers; None where that is not wanted."""
    if not wanted:
        yield None
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from emulator.learning.operations import Operations

    with Operations() as counted:
        counted.steps = 0  # type: ignore[attr-defined]

        def stepped(*_: Any) -> None:
            counted.steps += 1  # type: ignore[attr-defined]

        hook = register_optimizer_step_post_hook(stepped)
        try:
            yield counted
        finally:
            hook.remove()


def _failed(code: int, error: BaseException, state: bytes) -> Reply:
    from emulator.flower.codec import error_body

    frames = traceback.extract_tb(error.__traceback__)
    here = [n for n, frame in enumerate(frames) if frame.filename == __file__]
    kept = frames[(max(here) + 1) if here else 0 :]
    trace = "".join([*traceback.format_list(kept), *traceback.format_exception_only(error)])
    reason = f"{type(error)}:<'{error}'>"
    return Reply(error_body(code, reason).data, True, state, trace=trace, code=code)
