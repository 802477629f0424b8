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

_TUPLES = frozenset(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"))
MAX_DEPTH = 1000  # of tuples in tuples
MAX_BITS = 10_000  # of a whole number; Python writes none of more than 4,300 digits


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
    tuples = 0
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
            if isinstance(argument, int) and argument.bit_length() > MAX_BITS:
                raise wrong(path, 0, f"refused: at byte {position} there is a number of thousands of digits")
            tuples += operation.name in _TUPLES
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise wrong(path, 0, "refused: there is a number of thousands of digits") from None
        raise wrong(path, 0, f"is not a pickle: {error}") from None
    if tuples > MAX_DEPTH:
        _check_depth(path, raw)


def _check_depth(path: Path, raw: bytes) -> None:
    """Raises `InputError` where tuples stand in tuples too deeply: to hash such a key would crash Python."""
    stack: list[int] = []  # the depth of each value
    marks: list[int] = []
    kept: dict[Any, int] = {}
    for operation, argument, position in pickletools.genops(raw):
        if operation.name == "MARK":
            marks.append(len(stack))
        elif operation.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            kept[len(kept) if argument is None else argument] = stack[-1] if stack else 0
        else:
            taken = len(operation.stack_before)
            if pickletools.markobject in operation.stack_before:  # what stands before the mark, and all behind it
                taken = (
                    len(stack) - (marks.pop() if marks else 0) + operation.stack_before.index(pickletools.markobject)
                )
            depth = max(stack[len(stack) - taken :], default=0) + (operation.name in _TUPLES)
            if depth > MAX_DEPTH:
                raise wrong(path, 0, f"refused: at byte {position} tuples are nested deeper than {MAX_DEPTH} levels")
            del stack[max(0, len(stack) - taken) :]
            stack += [kept.get(argument, 0) if "GET" in operation.name else depth] * len(operation.stack_after)
