"""Pickles from strangers. A pickle is a program that may do anything; only those that just build plain data are run here."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from traces.source import read_bytes, wrong

# What builds a dict, list, tuple, str, int, float, bool or None, and what keeps such a value for later.
_PLAIN = frozenset(
    """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8
    EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS
    PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
    """.split()  # noqa: SIM905 (a line for each kind)
)


class _PlainUnpickler(pickle.Unpickler):
    """Finds no class and no function. The check of the operations has refused them before; this is the second lock."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"'{module}.{name}' is not plain data")


def load_plain(path: Path) -> Any:
    """The data of a pickle of dicts, lists, tuples, texts, numbers, truth values and None.

    Raises `InputError` for a pickle that would do anything else, before any of it is run, and for what is no pickle.
    """
    raw = read_bytes(path)
    _check(path, raw)
    try:
        return _PlainUnpickler(io.BytesIO(raw)).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise wrong(path, 0, f"is a broken pickle: {error}") from None


def _check(path: Path, raw: bytes) -> None:
    try:
        for count, (operation, argument, position) in enumerate(pickletools.genops(raw)):
            if operation.name not in _PLAIN:
                what = f" ({str(argument)[:60]!r})" if argument is not None else ""
                raise wrong(
                    path,
                    0,
                    f"refused: at byte {position} the pickle asks for {operation.name}{what}; "
                    "only dicts, lists, tuples, texts, numbers, true, false and None are read",
                )
            # Whoever asks for a shelf with a huge number gets all the shelves below it, and the memory is full.
            if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument is None or not 0 <= argument <= count):
                raise wrong(path, 0, f"is a broken pickle: at byte {position} it keeps a value as number {argument}")
    except ValueError as error:
        raise wrong(path, 0, f"is not a pickle: {error}") from None
