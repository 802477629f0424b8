"""The ``hfl`` command. It imports from every room below; what it does itself is talk to the user.

Each module registers its commands with the application in `app`. Exit codes: 0 done, 1 a run failed, 2 bad input,
130 interrupted.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from rich.markup import escape

from emulator import interruption, plugins
from emulator.cli import (  # noqa: F401 (they register their commands)
    calibrate,
    calibrate_from,
    calibrate_links,
    certifying,
    choosing,
    comparing,
    distilling,
    energy,
    exploring,
    fleet,
    flower,
    grouping,
    memo,
    plotting,
    prepared,
    pricing,
    reporting,
    running,
    sample_data,
    studying,
    testbed,
    traces,
)
from emulator.cli.app import app, err
from emulator.errors import HflError, InputError


def main() -> None:
    """Runs the command line; turns our errors into messages and exit codes."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # processes that are started from here do not look into the current folder either
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show must not end a run
    try:
        _check_words(sys.argv[1:])
        with interruption.heard(), plugins.blaming():
            app()
    except HflError as error:
        err.print(f"[red]error:[/] {escape(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:
        # A path that cannot be written to is the user's to mend; a full disk or the like is a failed run.
        err.print(f"[red]error:[/] {escape(str(error.filename or 'file'))}: {escape(error.strerror or str(error))}")
        wrong_path = FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError | FileExistsError
        sys.exit(2 if isinstance(error, wrong_path) else 1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise  # the words are torch's
        err.print(f"[red]error:[/] memory ran out: {escape(str(error).strip()) or 'no more is to be had'}")
        sys.exit(1)
    except UnicodeEncodeError as error:
        name = error.object[error.start : error.end].encode(errors="backslashreplace").decode()
        err.print(f"[red]error:[/] '{escape(name)}' cannot stand in the name of a file here ({error.encoding})")
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)


def _check_words(words: Sequence[str]) -> None:
    """Raises `InputError` where a word of the command is no text: such names could be neither printed nor stored."""
    for word in words:
        if not word.isascii() and any("\ud800" <= character <= "\udfff" for character in word):
            shown = os.fsencode(word).decode(errors="backslashreplace")
            why = "is not text in UTF-8; give it another name"
            if sys.getfilesystemencoding() != "utf-8":
                why = (
                    f"cannot be read in this locale ({sys.getfilesystemencoding()}); set LC_ALL=C.UTF-8 or PYTHONUTF8=1"
                )
            raise InputError(f"'{shown}' {why}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
