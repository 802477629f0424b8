"""CPU quotas: a control group of our own for each device, in version 1 or 2 of Linux's control groups."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from emulator.errors import HflError

PREFIX = "hfl-testbed-"
REST = "others"  # the group without a quota: servers, and threads of clients that do not compute
MOST_SHARES, MOST_WEIGHT = 262_144, 10_000  # of a group beside others, by the version
PERIOD_US = 10_000  # of a quota: short, so that a device computes evenly
LEAST_US = 1_000  # of a quota that the kernel takes
ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


def find_root() -> Path | None:
    """The folder in which CPU groups can be made here; None where there is none."""
    for root in ROOTS:
        if (root / "cpu.cfs_quota_us").is_file() and os.access(root, os.W_OK):
            return root
        with contextlib.suppress(OSError):
            if "cpu" in (root / "cgroup.subtree_control").read_text().split() and os.access(root, os.W_OK):
                return root
    return None


class Groups:
    """The groups of a run, in one folder with a name of its own."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self.folder = root / f"{PREFIX}{name}"
        self._second = not (root / "cpu.cfs_quota_us").is_file()

    def make(self, shares: Mapping[str, float]) -> None:
        """A group for each name, which may use such a share of a core. Raises `HflError` where that is not possible."""
        try:
            self.folder.mkdir()
        except FileExistsError:
            raise HflError(f"{self.folder} is there already, and not ours; remove it, or wait for its owner") from None
        except OSError as error:
            raise HflError(f"cannot make {self.folder}: {error.strerror}") from None
        try:
            # What else the host does must not take from a device what its quota gives it.
            if self._second:
                (self.folder / "cgroup.subtree_control").write_text("+cpu")
                (self.folder / "cpu.weight").write_text(str(MOST_WEIGHT))
            else:
                (self.folder / "cpu.shares").write_text(str(MOST_SHARES))
            (self.folder / REST).mkdir()
            for name, share in shares.items():
                group = self.folder / name
                group.mkdir()
                period_us = max(PERIOD_US, round(LEAST_US / share))
                self._limit(group, round(period_us * share), period_us)
        except OSError as error:
            raise HflError(f"cannot make a CPU group with a quota: {error.strerror}") from None

    def _limit(self, group: Path, quota_us: int, period_us: int) -> None:
        if self._second:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))

    def put(self, name: str, pid: int) -> None:
        """Puts a process into a group: its main thread, which computes; in version 2 all of it. "" is none with a quota."""
        try:
            if not self._second or not name:
                (self.folder / REST / "cgroup.procs").write_text(str(pid))
            if name:
                (self.folder / name / ("cgroup.procs" if self._second else "tasks")).write_text(str(pid))
        except OSError as error:
            raise HflError(f"cannot put a process into {self.folder / (name or REST)}: {error.strerror}") from None


def remove(folder: Path) -> None:
    """Removes the groups of a run, whose processes have ended. Does nothing where they are gone, or the name is not ours."""
    if not folder.name.startswith(PREFIX) or folder.parent not in ROOTS:
        return
    for _ in range(100):  # a process that was just killed is in its group for a moment
        try:
            for group in folder.iterdir():
                if group.is_dir():
                    group.rmdir()
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
