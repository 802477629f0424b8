"""What local rules with memory (SCAFFOLD, FedDyn) remember between trainings: a state for each client and a shared one."""

from __future__ import annotations

from emulator.contracts.learning import LocalRule
from emulator.learning.interface import AnyLab
from emulator.learning.recipes import Handle


class RuleMemory:
    """The states of a local rule over a run. For rules without memory it holds nothing and changes nothing.

    The shared state stays as it is within a global round; the clients' own change with each training. Clients that never
    trained have the state zero.
    """

    def __init__(self, lab: AnyLab, local: LocalRule, clients: int) -> None:
        self.rule = local()
        self._lab = lab
        self._clients = clients
        self._shared = lab.zeros()
        self._own: dict[int, Handle] = {}
        self._before: dict[int, Handle] = {}  # the states, at the beginning of the round, of those who trained in it

    def of(self, client: int) -> tuple[Handle, Handle] | None:
        """What a client's training starts from; None for rules without memory."""
        if self.rule.remember is None:
            return None
        return self._shared, self._own_of(client)

    def keep(self, client: int, own: Handle | None) -> None:
        """Takes a client's new state."""
        if own is not None:
            self._before.setdefault(client, self._own_of(client))
            self._own[client] = own

    def _own_of(self, client: int) -> Handle:
        return self._own[client] if client in self._own else self._lab.zeros()

    def end_round(self, average: Handle) -> Handle:
        """Updates the shared state from the clients that trained in this round; returns the new global model (see `Rule`)."""
        if self.rule.remember is None or not self._before:
            return average
        lab, share = self._lab, 1.0 / self._clients
        changed = sorted(self._before)
        after, before = [self._own[c] for c in changed], [self._before[c] for c in changed]
        weights = [1.0, *([share] * len(changed)), *([-share] * len(changed))]
        self._shared = lab.combine([self._shared, *after, *before], weights)
        self._before.clear()
        if not self.rule.server_gain:
            return average
        return lab.combine([average, self._shared], [1.0, self.rule.server_gain])
