"""Clients' code of an app, in worker processes side by side: asked when a message sets out, answered when it has arrived.

A question is a message and all that its reply depends on. What was answered before, in this run or another one, is remembered
by the hash of the question, and no code runs. The first question of each kind of message is answered twice: where the two
differ, the app is not deterministic, and nothing of it is remembered.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import logging
import multiprocessing
import os
import sys
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from emulator.errors import HflError
from emulator.flower.codec import Body
from emulator.flower.replies import FORMAT, Replies, Reply
from emulator.flower.worker import Code, Job, begin, work
from emulator.processes import without_main

log = logging.getLogger(__name__)
_VERSIONS = ("flwr", "torch", "numpy", "hfl-emulator")


@dataclass(frozen=True)
class Question:
    """A message for a client and all that the reply depends on; ``key`` is the hash of it."""

    key: str
    job: Job


class Clients:
    """Answers questions.

    ``ran`` counts how often client code was run, ``remembered`` how often it was not, ``tries`` the second tries.
    """

    def __init__(
        self,
        code: Code,
        identity: str,
        replies: Replies,
        seed: int,
        workers: int | None,
        clients: int,
        patience_s: float,
    ) -> None:
        """``identity`` is the hash of the app's code."""
        self._code = code
        self._replies = replies
        self._seed = seed
        self._patience_s = patience_s
        self._workers = min(workers or os.cpu_count() or 1, clients)
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        self._running: dict[str, concurrent.futures.Future[Reply]] = {}
        self._trials: dict[str, tuple[Question, list[concurrent.futures.Future[Reply]]]] = {}  # by kind of message
        self._tried: set[str] = set()
        self._put: set[str] = set()
        self.deterministic = True
        self.ran = self.remembered = self.tries = 0
        about = [FORMAT, identity, code.reference, code.counting, sys.version_info[:2], *map(version, _VERSIONS)]
        self._identity = hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def question(
        self,
        body: Body,
        message_type: str,
        group_id: str,
        node_id: int,
        node_config: dict[str, Any],
        run_config: dict[str, Any],
        state: bytes,
    ) -> Question:
        """What is asked of a client's code. Message ids and instants are no part of it."""
        depends = [self._identity, self._seed, body.digest, message_type, group_id, node_id]
        told = json.dumps([*depends, sorted(node_config.items()), sorted(run_config.items())]).encode()
        key = hashlib.sha256(told + b"\n" + state).hexdigest()
        seed = int(key[:15], 16)
        return Question(
            key,
            Job(body.data, body.is_error, message_type, group_id, node_id, node_config, run_config, state, seed),
        )

    def ahead(self, question: Question) -> None:
        """Begins with a question whose answer will be wanted."""
        if question.key not in self._running and not self._replies.has(question.key):
            self._start(question)

    def drop(self, question: Question) -> None:
        """Forgets a question whose answer nobody wants any longer."""
        running = self._running.pop(question.key, None)
        if running is not None:
            running.cancel()

    def answer(self, question: Question, where: str) -> Reply:
        """The answer to a question. Raises `HflError` where it never comes; ``where`` says whose it is."""
        key = question.key
        if key not in self._running:
            known = self._replies.get(key)
            if known is not None:
                self.remembered += 1
                return known
            self._start(question)
        reply = self._result(self._running.pop(key), where)
        self.ran += 1
        self._try_out(question.job.message_type, where)
        if self.deterministic and not reply.is_error:
            self._replies.put(key, reply)
            self._put.add(key)
        return reply

    def _start(self, question: Question) -> None:
        kind = question.job.message_type
        self._running[question.key] = self._submit(question)
        if kind not in self._tried:
            self._tried.add(kind)
            self._trials[kind] = question, [self._running[question.key], self._submit(question)]

    def _try_out(self, kind: str, where: str) -> None:
        if kind not in self._trials:
            return
        _, futures = self._trials.pop(kind)
        if any(future.cancelled() for future in futures):
            self._tried.discard(kind)
            return
        first, second = (self._result(future, where) for future in futures)
        self.tries += 1
        if first.same_as(second) or not self.deterministic or first.is_error:
            return
        self.deterministic = False
        for key in self._put:
            self._replies.forget(key)
        log.warning(
            "the app is not deterministic: its client code gave two replies to the same '%s' message; none is remembered",
            kind,
        )

    def _result(self, future: concurrent.futures.Future[Reply], where: str) -> Reply:
        try:
            return future.result(self._patience_s)
        except TimeoutError:
            raise HflError(
                f"{where}: the app's client code has not returned for {self._patience_s:g} real seconds; "
                "give it longer with --patience, or look for a loop without an end"
            ) from None
        except BrokenProcessPool as error:
            raise HflError(
                f"{where}: a worker process died with the app's client code in it; it may have run out of memory "
                "(fewer --workers need less)"
            ) from error

    def _submit(self, question: Question) -> concurrent.futures.Future[Reply]:
        if self._pool is None:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._workers, multiprocessing.get_context("spawn"), begin, (self._code,)
            )
        with without_main():
            return self._pool.submit(work, question.job)

    def close(self) -> None:
        """Ends the worker processes, whatever they do."""
        if self._pool is None:
            return
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with contextlib.suppress(OSError, ValueError):
                process.kill()
        for process in processes:
            process.join(5)
        self._pool = None
