"""What there is to compute with."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Memory that is left for this process, swap space included; None where the system does not say."""
    try:
        told = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    left = [1024 * sum(int(n) for n in re.findall(r"^(?:MemAvailable|SwapFree): +(\d+) kB$", told, re.MULTILINE))]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):  # of a container
        try:
            left.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue  # there is no such file, or no limit
    return min(left)
