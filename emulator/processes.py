"""Processes of our own, which never import the script or the notebook that runs here.

Python starts a process anew by importing the main script in it, so that whatever was defined there can be found. A script without
``if __name__ == "__main__":`` would then run once more in each of them. Ours need nothing of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import ModuleType

MAIN = "__main__"
_one_at_a_time = threading.Lock()


def start(process: BaseProcess) -> None:
    """Starts a process of the method ``spawn`` that does not import this one's main script."""
    with without_main():
        process.start()


@contextmanager
def without_main() -> Iterator[None]:
    """A block in which processes of the method ``spawn`` are started that do not import this one's main script."""
    with _one_at_a_time:
        script = sys.modules[MAIN]
        sys.modules[MAIN] = ModuleType(MAIN)  # without a file or a spec: there is nothing to import
        try:
            yield
        finally:
            sys.modules[MAIN] = script
