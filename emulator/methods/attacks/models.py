"""Attacks on the model: attackers train as all do, and send something else (Blanchard et al. 2017, Bagdasaryan et al. 2020).

Attackers are drawn once: a share of all clients, or, as label flipping has it, a share of the clients in a share of the groups
when groups are first formed. What they send in local training alone is poisoned: what servers learn of clients to form groups, to
divide them and to compare them is honest, and so is the state that a rule with memory keeps. A client that hands its model on in
a chain hands on the poisoned one. Buffers (running statistics) stay as they were trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from emulator.contracts.methods import AttackFacts, attacks
from emulator.learning.vector_functions import Poisoned
from emulator.methods.attacks import Attack
from emulator.methods.attacks.attackers import Share, first, in_groups
from emulator.registry import Params, Scale

if TYPE_CHECKING:
    from emulator.learning.recipes import Handle
    from emulator.methods.session import Session
    from emulator.methods.training import Group


class AttackersParams(Params):
    """Who attacks."""

    share: Share | None = Field(
        None, description="share of all clients that attack; or say 'superclients' and 'clients'"
    )
    superclients: Share | None = Field(None, description="share of the groups that hold attackers (L_S in S4)")
    clients: Share | None = Field(None, description="share of the clients of such a group that attack (L)")

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Shares that do not say who attacks."""
        both = self.superclients is not None and self.clients is not None
        neither = self.superclients is None and self.clients is None
        if not (neither if self.share is not None else both):
            yield "share", "give either 'share', of all clients, or both 'superclients' and 'clients'"
        elif self.share and not int(self.share * scale.clients + 0.5 + 1e-9):
            yield "share", f"makes no attacker of {scale.clients} clients; give a larger one"


class SignFlipParams(AttackersParams):
    """Who attacks, and how hard."""

    factor: Annotated[float, Field(gt=0)] = Field(1.0, description="how many times its update, turned round, is sent")


class ScaledUpdateParams(AttackersParams):
    """Who attacks, and how hard."""

    factor: Annotated[float, Field(gt=0)] = Field(10.0, description="how many times its update is sent")


class GaussianNoiseParams(AttackersParams):
    """Who attacks, and how hard."""

    deviation: Annotated[float, Field(gt=0)] = Field(1.0, description="standard deviation of each number of the update")


class ModelAttack(Attack):
    """An attack on the model; each kind says what is sent."""

    kind: ClassVar[str]
    how: ClassVar[Literal["scale", "noise"]] = "scale"

    def __init__(self, session: Session, params: AttackersParams, size: float) -> None:
        self._session = session
        self._params = params
        self._size = size
        self._sent = 0
        self._attackers: frozenset[int] | None = None  # once they are drawn
        if params.share is not None:
            everybody = range(session.scenario.topology.client_count)
            self._attackers = frozenset(first(session.seed, everybody, params.share, "clients"))

    def formed(self, groups: Sequence[Group]) -> None:
        """Draws the attackers, when groups are first formed. Raises `InputError` where the shares are too small for one."""
        shares = self._params.superclients, self._params.clients
        if self._attackers is None and shares[0] is not None and shares[1] is not None:
            self._attackers = frozenset(in_groups(self._session.seed, groups, shares[0], shares[1]))

    def trained(self, round: int, turn: int, client: int, before: Handle, after: Handle) -> Handle:  # noqa: A002
        """What an attacker sends; the model as it was trained, of everybody else."""
        if client not in (self._attackers or ()):
            return after
        self._sent += 1
        session = self._session
        name = (round, turn, client)
        function = Poisoned(self.how, self._size, session.lab.model_facts.parameters, session.seed, name)
        return session.lab.apply(function, [before, after])[0]

    def facts(self) -> dict[str, Any]:
        """How many clients attack, which, and how many poisoned models they sent."""
        attackers = sorted(self._attackers or ())
        return {"kind": self.kind, "attackers": len(attackers), "clients": attackers, "models": self._sent}


@attacks.register("sign-flip", SignFlipParams, AttackFacts(models=True))
class SignFlip(ModelAttack):
    """Sign flip: attackers send their update turned round."""

    kind = "sign-flip"

    def __init__(self, session: Session, params: SignFlipParams) -> None:
        super().__init__(session, params, -params.factor)


@attacks.register("scaled-update", ScaledUpdateParams, AttackFacts(models=True))
class ScaledUpdate(ModelAttack):
    """Scaled update: attackers send a multiple of their update (model replacement, Bagdasaryan et al. 2020)."""

    kind = "scaled-update"

    def __init__(self, session: Session, params: ScaledUpdateParams) -> None:
        super().__init__(session, params, params.factor)


@attacks.register("gaussian-noise", GaussianNoiseParams, AttackFacts(models=True))
class GaussianNoise(ModelAttack):
    """Gaussian noise: attackers send normal numbers in place of their update (Blanchard et al. 2017)."""

    kind = "gaussian-noise"
    how = "noise"

    def __init__(self, session: Session, params: GaussianNoiseParams) -> None:
        super().__init__(session, params, params.deviation)
