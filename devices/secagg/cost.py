"""What a run of the protocol costs: how often each operation comes, times its seconds; and bytes, exactly as they are sent.

The counts are those of `client` and `server`. The costs of a client are those of one that stays to the end. Clients that drop out
do so after they shared their keys and before they send their vectors, where it costs the server most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from devices.profile import Curve
from devices.secagg.constants import Constants
from devices.secagg.identity import SIGNATURE_BYTES
from devices.secagg.mask import word_type
from devices.secagg.messages import ENTRY_OF_REVEALED_BYTES, ENTRY_OF_SHARES_BYTES, NUMBER_BYTES, Consent, Keys
from devices.secagg.shamir import threshold_of
from devices.secagg.steps import CONSISTENCY, KEYS, MASKED, SHARES, UNMASK, Adversary, Step, steps_of

Party = Literal["client", "server"]
PARTIES: tuple[Party, ...] = ("client", "server")


@dataclass(frozen=True)
class ProtocolGroup:
    """Who takes part: ``dropped`` of the clients drop out (a mean, so not always whole); vectors have ``elements`` numbers.

    The threshold of a run is a whole number; that of a curve over sizes of groups (`protocol_curve`) is a share of the clients.
    """

    clients: int
    threshold: float
    dropped: float
    elements: int
    adversary: Adversary = "passive"


@dataclass(frozen=True)
class StepCost:
    """What one step costs: a client's and the server's seconds, and the bytes that a client sends and gets."""

    client_s: float
    server_s: float
    up_bytes: int
    down_bytes: int


@dataclass(frozen=True)
class ProtocolCost:
    """What a run costs, by step and in total. ``vector_bytes`` are the masked vector's share of ``up_bytes``."""

    steps: Mapping[Step, StepCost]
    vector_bytes: int

    @property
    def client_s(self) -> float:
        """Seconds that a client computes."""
        return sum(step.client_s for step in self.steps.values())

    @property
    def server_s(self) -> float:
        """Seconds that the server computes, while all clients wait."""
        return sum(step.server_s for step in self.steps.values())

    @property
    def up_bytes(self) -> int:
        """Bytes that a client sends to the server."""
        return sum(step.up_bytes for step in self.steps.values())

    @property
    def down_bytes(self) -> int:
        """Bytes that a client gets from the server. The sum itself is not among them."""
        return sum(step.down_bytes for step in self.steps.values())

    @property
    def overhead_up_bytes(self) -> int:
        """Bytes that a client sends beside the vector, which it would send without the protocol too."""
        return self.up_bytes - self.vector_bytes


def protocol_cost(
    clients: int,
    parameters: int,
    dropout: float,
    threshold_share: float,
    constants: Constants,
    vectors: int = 1,
    bits: int = 32,
    adversary: Adversary = "passive",
) -> ProtocolCost:
    """What a secure aggregation costs in a group of ``clients``, each with ``vectors`` vectors of ``parameters`` numbers.

    ``dropout`` is the share of clients that drop out, ``threshold_share`` the share that must be left (rounded up,
    above one half), ``bits`` those of a number on its way. Bytes are those of `devices.secagg.session.run` in the same
    setting, whoever the ``adversary`` is. A group of one has nobody to hide among: its vector goes in the clear, at no
    cost. Raises ``ValueError`` for values out of range, and where constants are missing that an active adversary asks for.
    """
    if clients < 1 or parameters < 1 or vectors < 1:
        raise ValueError(
            f"clients, parameters and vectors must be at least 1, not {clients}, {parameters} and {vectors}"
        )
    _check_dropout(dropout)
    if adversary == "active" and (constants.sign is None or constants.verify is None):
        raise ValueError(
            "there are no constants 'sign' and 'verify', which signatures against an active adversary take"
        )
    vector_bytes = parameters * vectors * word_type(bits).itemsize
    threshold = threshold_of(clients, threshold_share)
    group = ProtocolGroup(clients, threshold, dropout * clients, parameters * vectors, adversary)
    all_steps = steps_of(adversary)
    if clients == 1:
        nothing = StepCost(0.0, 0.0, 0, 0)
        return ProtocolCost(
            {step: StepCost(0.0, 0.0, vector_bytes, 0) if step == MASKED else nothing for step in all_steps},
            vector_bytes,
        )
    up, down = _bytes(group, vector_bytes)
    steps = {
        step: StepCost(
            seconds_of(operations("client", step, group), constants),
            seconds_of(operations("server", step, group), constants),
            up[step],
            down[step],
        )
        for step in all_steps
    }
    return ProtocolCost(steps, vector_bytes)


def protocol_curve(
    parameters: int,
    dropout: float,
    threshold_share: float,
    constants: Constants,
    slowdown: float = 1.0,
    server_slowdown: float = 1.0,
    vectors: int = 1,
) -> Curve:
    """Seconds of a member of a group of n, ``a + b n + c n²``: its own and those that it waits for the server.

    The arguments are those of `protocol_cost`, against a passive adversary; the slowdowns are those of one core of the member
    and of the server. The protocol's counts are quadratic in n but for its threshold, which is rounded up to whole clients
    there and not here. So from n = 2 on the curve is below `protocol_cost` by what less than one more client of threshold
    costs: ``2 n`` share terms of the member, ``2 s n + 1`` basis terms and ``n`` secret terms of the server, where s is the
    threshold's share. ``a`` may be below zero, because nobody agrees on a key with itself; from n = 1 on the sum is not.
    Raises ``ValueError`` for values out of range.
    """
    if parameters < 1 or vectors < 1:
        raise ValueError(f"parameters and vectors must be at least 1, not {parameters} and {vectors}")
    return _curve(parameters * vectors, dropout, threshold_share, constants, slowdown, server_slowdown)


def fixed_curve(
    dropout: float, threshold_share: float, constants: Constants, slowdown: float = 1.0, server_slowdown: float = 1.0
) -> Curve:
    """What of `protocol_curve` is the same for models of all sizes: keys, shares and messages, and no masks."""
    return _curve(0, dropout, threshold_share, constants, slowdown, server_slowdown)


def _curve(
    elements: int, dropout: float, threshold_share: float, constants: Constants, slowdown: float, server_slowdown: float
) -> Curve:
    _check_dropout(dropout)
    if not (slowdown > 0 and server_slowdown > 0):
        raise ValueError(f"slowdowns must be greater than 0, not {slowdown} and {server_slowdown}")

    def seconds(n: int) -> float:
        group = ProtocolGroup(n, threshold_share * n, dropout * n, elements)
        client_s, server_s = (
            sum(seconds_of(operations(party, step, group), constants) for step in steps_of(group.adversary))
            for party in PARTIES
        )
        return slowdown * client_s + server_slowdown * server_s

    before, at, after = seconds(-1), seconds(0), seconds(1)  # three points give a quadratic function
    return Curve.model_construct(a=at, b=(after - before) / 2, c=(after + before) / 2 - at)


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")


def seconds_of(counts: Mapping[str, float], constants: Constants) -> float:
    """The seconds of so many operations, counted by the name of their constant."""
    return sum(count * float(getattr(constants, name)) for name, count in counts.items())


def operations(
    party: Party, step: Step, group: ProtocolGroup, *, reuse_basis: bool = True, recover_all: bool = False
) -> dict[str, float]:
    """How often a party does what in a step, by the name of the constant.

    The two options are for measurements of other implementations. Without ``reuse_basis`` the weights of the shares are
    computed anew for each secret; with ``recover_all`` the server expands the masks between a dropped client and all
    others, not those alone whose vectors arrived.
    """
    n, t, length = group.clients, group.threshold, group.elements
    left = n - group.dropped
    pairs = group.dropped * (n - 1 if recover_all else left)
    client: dict[Step, dict[str, float]] = {
        KEYS: {"key_pair": 2},
        SHARES: {"agreement": n - 1, "seal": n - 1, "share_term": 2 * n * t},
        MASKED: {"agreement": n - 1, "mask_element": n * length, "encode_element": length},
        CONSISTENCY: {},
        UNMASK: {"unseal": n - 1},
    }
    server: dict[Step, dict[str, float]] = {
        KEYS: {"entry": n},
        SHARES: {"entry": n * (n - 1)},
        MASKED: {"add_element": left * length},
        CONSISTENCY: {"entry": left},
        UNMASK: {
            "entry": left * n,
            "basis_term": t * t * (1 if reuse_basis else n),
            "secret_term": n * t,
            "key_pair": group.dropped,
            "agreement": pairs,
            "mask_element": (left + pairs) * length,
        },
    }
    if group.adversary == "active":
        client[KEYS]["sign"] = client[CONSISTENCY]["sign"] = 1
        client[SHARES]["verify"] = n - 1
        client[UNMASK]["verify"] = left
    return {"step": 1} | (client[step] if party == "client" else server[step])


def _bytes(group: ProtocolGroup, vector_bytes: int) -> tuple[dict[Step, int], dict[Step, int]]:
    """Bytes that a client sends and gets in each step (see `devices.secagg.messages`)."""
    n, left = group.clients, group.clients - group.dropped
    keys = Keys.SIZE + (SIGNATURE_BYTES if group.adversary == "active" else 0)
    boxes = (n - 1) * ENTRY_OF_SHARES_BYTES
    up = {
        KEYS: keys,
        SHARES: NUMBER_BYTES + boxes,
        MASKED: NUMBER_BYTES + vector_bytes,
        CONSISTENCY: Consent.SIZE,
        UNMASK: 2 * NUMBER_BYTES + n * ENTRY_OF_REVEALED_BYTES,
    }
    survivors, consents = round(left * NUMBER_BYTES), round(left * Consent.SIZE)
    return up, {KEYS: n * keys, SHARES: boxes, MASKED: survivors, CONSISTENCY: consents, UNMASK: 0}
