"""Label flipping (S4 §V-A): attackers exchange labels in the data on which they train.

S4 counts attackers in two steps: a share L_S of the superclients is malicious, and in each of these a share L of the clients. All
other methods with groups are counted alike. Where all clients are one group (FedAvg), a share L_S · L of them attacks, so that
methods can be compared with as many attackers (S4 §V-C). Shares become numbers by rounding, halves up.

Attackers are drawn when groups are first formed and stay attackers where groups are formed anew. Until then they behave as all
others do: what servers learn of clients to form the groups is honest. Labels are exchanged in local training alone, not in
what a client says it holds. With larger shares, the attackers of smaller ones attack too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from emulator.contracts.methods import AttackFacts, attacks
from emulator.errors import InputError
from emulator.learning.recipes import Swaps
from emulator.methods.attacks import Attack
from emulator.methods.attacks.attackers import Share, in_groups
from emulator.registry import Params, Scale
from emulator.rng import stream
from emulator.tables import Table

if TYPE_CHECKING:
    from emulator.methods.session import Session
    from emulator.methods.training import Group

ATTACKERS = Table("attackers", ("client", "group", "swaps"))  # who attacks

Label = Annotated[int, Field(ge=0)]
Pair = Annotated[tuple[Label, Label], Field(strict=False)]


class LabelFlipParams(Params):
    """Who attacks, and how."""

    superclients: Share = Field(description="share of the groups that hold attackers (L_S in S4)")
    clients: Share = Field(description="share of the clients of such a group that attack (L)")
    swap: tuple[Pair, ...] = Field(
        strict=False, min_length=1, description="pairs of labels that are exchanged, such as [[0, 2], [3, 5]]"
    )
    choice: Literal["fixed", "random"] = Field(
        "fixed", description="every attacker exchanges all pairs, or each one pair that it draws by itself"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Labels that there are not, or that cannot be exchanged."""
        labels = list(itertools.chain(*self.swap))
        if twice := sorted(label for label, count in Counter(labels).items() if count > 1):
            yield "swap", f"label {twice[0]} stands in it twice; each label may be exchanged with one other"
        if scale.classes is not None and max(labels) >= scale.classes:
            yield "swap", _beyond(max(labels), scale.classes)
        if self.choice == "random" and len(self.swap) < 2:
            yield "choice", "'random' needs at least two pairs in 'swap' to draw from; with one, say 'fixed'"


@attacks.register("label-flip", LabelFlipParams, AttackFacts(by_class=True, groups=True, tables=(ATTACKERS,)))
class LabelFlip(Attack):
    """Label flipping: clients of some groups exchange labels in their training data (S4 Table 6)."""

    def __init__(self, session: Session, params: LabelFlipParams) -> None:
        classes = session.lab.clients.label_counts.shape[1]
        largest = max(itertools.chain(*params.swap))
        if largest >= classes:
            raise InputError(_beyond(largest, classes), "attacks.swap")
        self._session = session
        self._params = params
        self._swaps: dict[int, Swaps] | None = None  # by attacker, once they are drawn

    def formed(self, groups: Sequence[Group]) -> None:
        """Draws the attackers, when groups are first formed. Raises `InputError` where the shares are too small for one."""
        if self._swaps is not None:
            return
        group_of = in_groups(self._session.seed, groups, self._params.superclients, self._params.clients)
        self._swaps = {client: self._pairs_of(client) for client in sorted(group_of)}
        self._session.lab.poison(self._swaps)
        for client, pairs in self._swaps.items():
            text = " ".join(f"{a}-{b}" for a, b in pairs)
            self._session.note(ATTACKERS.name, {"client": client, "group": group_of[client], "swaps": text})

    def facts(self) -> dict[str, Any]:
        """How many clients attack, and which."""
        attackers = list(self._swaps or ())
        return {"kind": "label-flip", "attackers": len(attackers), "clients": attackers}

    def _pairs_of(self, client: int) -> Swaps:
        pairs = self._params.swap
        if self._params.choice == "fixed":
            return pairs
        return (pairs[int(stream(self._session.seed, "attack", "swap", client).integers(len(pairs)))],)


def _beyond(label: int, classes: int) -> str:
    return f"there is no label {label}; the data set has {classes} classes, numbered from 0 to {classes - 1}"
