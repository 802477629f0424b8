"""What a run of the testbed makes on this machine stands in a file before it is made, so that the next one can remove it.

Namespaces have no names and go with the processes that hold them; the nursery and its nodes are killed by the kernel when the
driver ends. What a driver that was killed itself may leave are CPU groups and /dev/net/tun, where it had made it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from emulator.files import write_text
from emulator.testbed import groups
from emulator.testbed.namespaces import TUN

NAME = "hfl-testbed-*.json"
WAIT_S = 5.0


@dataclass
class Made:
    """What a run has made, or is about to: by a driver, which is known by its id and the time of its start."""

    driver: int
    since: str
    processes: dict[int, str] = field(default_factory=dict)  # ids, each with the time of its start
    group: str = ""
    device: bool = False  # /dev/net/tun


def home() -> Path:
    """The folder of these files: the same for all runs of a user."""
    uid = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"hfl-testbed-{uid}"


def since(pid: int) -> str:
    """When a process started, as the system counts, so that another one with its id is not taken for it; "" where it is gone."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "?"
    state, *rest = told.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


class Record:
    """The file of a run. To be closed when everything is gone."""

    def __init__(self) -> None:
        folder = home()
        folder.mkdir(mode=0o700, exist_ok=True)
        told = folder.lstat()
        if not stat.S_ISDIR(told.st_mode) or (hasattr(os, "getuid") and told.st_uid != os.getuid()):
            raise PermissionError(f"{folder} is not a folder of ours")
        self.made = Made(os.getpid(), since(os.getpid()))
        self._path = folder / f"hfl-testbed-{os.getpid()}.json"
        self.write()

    def write(self) -> None:
        """Writes down what there is, or will be."""
        write_text(self._path, json.dumps(asdict(self.made)))

    def keep(self, scenario: str) -> Path:
        """Writes the scenario for processes of this run; where it stands."""
        path = _scenario_of(self.made.driver)
        write_text(path, scenario)
        return path

    def add(self, pid: int) -> None:
        """Notes a process."""
        self.made.processes[pid] = since(pid)
        self.write()

    def close(self) -> None:
        """Removes the file, and what it kept."""
        _scenario_of(self.made.driver).unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)


def _scenario_of(driver: int) -> Path:
    return home() / f"scenario-{driver}.yaml"


def abandoned() -> Iterator[tuple[Path, Made]]:
    """The files of runs whose driver is gone, and what they say."""
    for path in sorted(home().glob(NAME)):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            told = json.loads(path.read_text())
            processes = {int(pid): str(when) for pid, when in told.pop("processes").items()}
            made = Made(**told, processes=processes)
            if since(made.driver) != made.since or not made.since:
                yield path, made


def clean() -> list[str]:
    """Removes what runs have left whose driver is gone; says what it was, one line for each thing."""
    said = []
    for path, made in abandoned():
        alive = {pid: when for pid, when in made.processes.items() if when and since(pid) == when}
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            said.append(f"process {pid}")
        until_s = time.monotonic() + WAIT_S
        while any(since(pid) == when for pid, when in alive.items()) and time.monotonic() < until_s:
            time.sleep(0.02)
        if made.group and Path(made.group).is_dir():
            groups.remove(Path(made.group))
            said.append(f"CPU groups in {made.group}")
        if made.device and TUN.exists():
            with contextlib.suppress(OSError):
                TUN.unlink()
            said.append(str(TUN))
        _scenario_of(made.driver).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return said
