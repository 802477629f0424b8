"""Network namespaces without a name, and devices in them. Linux, as root, with iproute2; standard library only.

Only descriptors of this process hold such a namespace. The kernel removes it, with its devices, routes and sockets, when the
process ends in whatever way.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emulator.errors import HflError

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
TUN = Path("/dev/net/tun")
SIOCETHTOOL = 0x8946
# Of <linux/ethtool.h>: what makes one large packet of several, at the sender and at the receiver.
ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO = 0x1F, 0x24, 0x2C
COMMAND_S = 20  # that a command of iproute2 may take

libc = ctypes.CDLL(None, use_errno=True)


def system_call(what: str, result: int) -> None:
    """Raises `HflError` where a call of the C library failed."""
    if result:
        raise HflError(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def check_machine() -> None:
    """Raises `HflError` with what is missing, where this machine has no namespaces or devices for us."""
    if not Path("/proc/self/ns/net").exists():
        raise HflError("needs Linux with network namespaces")
    if os.geteuid() != 0:
        raise HflError("needs root, to make network namespaces and devices in them")
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise HflError(f"needs {program} of iproute2")


def enter(path: str) -> None:
    """Takes this thread into the namespace at a path (see `Namespace.path`), for as long as the thread lives; "": nowhere."""
    if path:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            system_call("enter a namespace", libc.setns(descriptor, CLONE_NEWNET))
        finally:
            os.close(descriptor)


class Counts(NamedTuple):
    """Packets and bytes that left a queue, packets that it dropped, and packets that wait in it."""

    packets: int
    bytes: int
    drops: int
    waiting: int


class Namespace:
    """A network namespace of our own. ``with`` it, this thread and what it starts are inside."""

    home = -1

    def __init__(self, name: str) -> None:
        self.name = name
        if Namespace.home < 0:
            Namespace.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        system_call("make a network namespace", libc.unshare(CLONE_NEWNET))
        self.descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.__exit__()

    def __enter__(self) -> None:
        system_call(f"enter the namespace of {self.name}", libc.setns(self.descriptor, CLONE_NEWNET))

    def __exit__(self, *_: object) -> None:
        system_call("leave a namespace", libc.setns(Namespace.home, CLONE_NEWNET))

    def close(self) -> None:
        """Lets go of it. The kernel removes it when no process is in it and no socket belongs to it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def path(self) -> str:
        """A path by which other processes find the namespace as long as this one lives."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def set(self, key: str, value: object) -> None:
        """Writes one of the namespace's kernel settings, such as ``net/ipv4/ip_forward``. Raises `HflError`."""
        try:
            with self:
                Path("/proc/sys", key).write_text(f"{value}\n")
        except OSError as error:
            raise HflError(f"cannot set {key.replace('/', '.')} to {value}: {error.strerror}") from None

    def setting(self, key: str) -> str:
        """One of the namespace's kernel settings, with single blanks."""
        with self:
            return " ".join(Path("/proc/sys", key).read_text().split())

    def command(self, *words: str, lines: Sequence[str] = ()) -> str:
        """What a command says that runs inside, with ``lines`` as its input. Raises `HflError` where it fails."""
        with self:
            done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, timeout=COMMAND_S)
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["it said nothing"]
            raise HflError(f"{' '.join(words)} failed: {said[0]}")
        return done.stdout

    def batch(self, lines: Sequence[str]) -> None:
        """Commands for ``ip``, without that word. Raises `HflError`."""
        if lines:
            self.command("ip", "-batch", "-", lines=lines)

    def shape(self, device: str, rate_bps: float, queue_bytes: int, burst_bytes: int) -> None:
        """Lets packets leave a device at this rate, from a drop-tail queue of so many bytes. Raises `HflError`."""
        words = f"rate {round(rate_bps)}bit burst {burst_bytes} limit {queue_bytes}"
        try:
            self.command("tc", "qdisc", "replace", "dev", device, "root", "tbf", *words.split())
        except HflError as error:
            raise HflError(f"no token bucket on a device (is sch_tbf in the kernel?): {error}") from None

    def shaped(self, device: str) -> Counts:
        """What a shaped device counted so far."""
        told: list[dict[str, Any]] = json.loads(self.command("tc", "-s", "-j", "qdisc", "show", "dev", device))
        root = next(qdisc for qdisc in told if qdisc["kind"] == "tbf")
        return Counts(root["packets"], root["bytes"], root["drops"], root["qlen"])

    def dropped(self, device: str) -> int:
        """Packets that a device itself dropped on their way out, behind its queue."""
        with self:
            for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
                name, _, counts = line.partition(":")
                if name.strip() == device:
                    return int(counts.split()[11])
        return 0

    def tun(self, device: str) -> int:
        """Makes a TUN device; a descriptor to read and write its IP packets. Raises `HflError`."""
        try:
            with self:
                descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                request = struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI)
                fcntl.ioctl(descriptor, TUNSETIFF, request)
        except OSError as error:
            raise HflError(f"no TUN device: {TUN} says {error.strerror} (is tun in the kernel?)") from None
        return descriptor

    def whole_packets(self, device: str) -> None:
        """Makes sure that a device is given packets as they are on the wire, not several as one."""
        with self, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for command in (ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO):
                value = array.array("I", [command, 0])
                request = struct.pack("16sQ16x", device.encode(), value.buffer_info()[0])
                try:
                    fcntl.ioctl(control, SIOCETHTOOL, request)
                except OSError as error:
                    if error.errno != errno.EOPNOTSUPP:
                        raise HflError(f"cannot turn offloads off: {error.strerror}") from None


@contextlib.contextmanager
def tun_node() -> Iterator[None]:
    """Makes sure that /dev/net/tun is there for a while: character device 10, 200, as the kernel documents it."""
    missing = not TUN.exists()
    if missing:
        try:
            TUN.parent.mkdir(exist_ok=True)
            os.mknod(TUN, stat.S_IFCHR | 0o600, os.makedev(10, 200))
        except OSError as error:
            raise HflError(f"no TUN device: {TUN} is missing, and cannot be made: {error.strerror}") from None
    try:
        yield
    finally:
        if missing:
            TUN.unlink()
