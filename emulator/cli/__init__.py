"""The ``hfl`` command. The only room that imports from every other; what it does itself is talk to the user.

Each module registers its commands with the application in `app`. Exit codes: 0 done, 1 a run failed, 2 bad input,
130 interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from types import FrameType

from rich.markup import escape

from emulator import interruption
from emulator.cli import (  # noqa: F401 (they register their commands)
    calibrate,
    choosing,
    comparing,
    distilling,
    energy,
    exploring,
    grouping,
    memo,
    plotting,
    reporting,
    running,
    sample_data,
    studying,
    traces,
)
from emulator.cli.app import app, err
from emulator.errors import HflError


def main() -> None:
    """Runs the command line; turns our errors into messages and exit codes."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # processes that are started from here do not look into the current folder either
    )
    try:
        with interruption.heard():
            app()
    except HflError as error:
        err.print(f"[red]error:[/] {escape(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:
        # A path that cannot be written to is the user's to mend; a full disk or the like is a failed run.
        err.print(f"[red]error:[/] {escape(str(error.filename or 'file'))}: {escape(error.strerror or str(error))}")
        wrong_path = FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError | FileExistsError
        sys.exit(2 if isinstance(error, wrong_path) else 1)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
