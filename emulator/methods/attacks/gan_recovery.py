"""GAN recovery (S4 §V-B): a client uses the models that it receives to make images like those of others.

It behaves as all clients do. Whenever an evaluation finds that the global model has first reached one of the given accuracies, it
trains a generator against that model (see `emulator.learning.gan`), or, in a chain, against the next model that its
predecessor hands on to it (S4 §V asks what that tells of the predecessor). Nothing of this reaches the run: its accuracy, time
and bytes are those of the run without the attack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from emulator.contracts.learning import MeasurementChoice
from emulator.contracts.methods import AttackFacts, TrainingChoice, attacks
from emulator.errors import InputError
from emulator.learning.recovery import Recovered, RecoveryParams, check_images
from emulator.methods.attacks import Attack
from emulator.registry import Params, Scale, choices
from emulator.tables import Table

if TYPE_CHECKING:
    from emulator.learning.recipes import Handle
    from emulator.methods.cluster_models import Clusters
    from emulator.methods.session import Session

Accuracy = Annotated[float, Field(gt=0, le=1)]
# How near to private images an attacker came, in a row for each model that it attacked.
RECOVERED = Table("recovered", ("at", "round", "accuracy", "distance", "untrained", "own", "floor"))
LEAST_OTHERS = 4  # samples of others: the distance between two halves of them needs two in each


class GanRecoveryParams(RecoveryParams):
    """Who attacks, when, and how."""

    client: Annotated[int, Field(ge=0)] = Field(
        0, description="number of the attacker; its own samples are the real ones"
    )
    at: tuple[Accuracy, ...] = Field(
        strict=False,
        min_length=1,
        description="accuracies (shares); the first evaluated model that has one is attacked",
    )
    sees: Literal["global", "predecessor"] = Field(
        "global",
        description="the model that it attacks: the global one, or the next that another client of its chain hands on to it",
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """A client that there is not, or accuracies that stand twice."""
        if self.client >= scale.clients:
            yield "client", f"there is no client {self.client}; they go from 0 to {scale.clients - 1}"
        if scale.clients < 2:
            yield "client", "there is nobody else whose images could be recovered"
        if len(set(self.at)) < len(self.at):
            yield "at", "an accuracy stands in it twice"


@attacks.register("gan-recovery", GanRecoveryParams, AttackFacts(by_class=True, tables=(RECOVERED,)))
class GanRecovery(Attack):
    """GAN recovery: a client makes images like those of others with models that it receives (S4 Fig. 11)."""

    def __init__(self, session: Session, params: GanRecoveryParams) -> None:
        self._session = session
        self._client = params.client
        self._left = sorted(params.at)
        self._sees = params.sees
        self._accuracy = 0.0  # the highest that an evaluation found
        if params.sees == "predecessor" and not in_chains(session.scenario.method.params):
            message = "no client of this method gets a model from another; say 'global', or take a method with chains"
            raise InputError(f"{message}, such as 'fedseq'", "attacks.sees")
        self._shape = session.lab.sample_shape
        check_images(self._shape)
        own, total = int(session.lab.clients.samples[self._client]), int(session.lab.clients.samples.sum())
        if not own or total - own < LEAST_OTHERS:
            needs = f"the attack needs at least one, and {LEAST_OTHERS} of others"
            raise InputError(f"client {self._client} has {own} of {total} samples; {needs}", "attacks.client")
        how = RecoveryParams(**{name: getattr(params, name) for name in RecoveryParams.model_fields})
        self._measurement = MeasurementChoice("gan-recovery", how)

    def evaluated(self, round: int, clusters: Clusters, accuracy: float) -> None:  # noqa: A002
        """Attacks, where a further accuracy is reached, the global model that the attacker receives."""
        self._accuracy = accuracy if accuracy > self._accuracy else self._accuracy
        if self._sees == "global":
            self._attack(round, clusters.models[int(clusters.of[self._client])], accuracy)

    def handed_on(self, round: int, client: int, model: Handle) -> None:  # noqa: A002
        """Attacks, where a further accuracy was reached, the model that the attacker's predecessor hands on to it."""
        if self._sees == "predecessor" and client == self._client and self._left and self._accuracy >= self._left[0]:
            self._attack(round, model, self._accuracy)

    def _attack(self, round: int, model: Handle, accuracy: float) -> None:  # noqa: A002
        while self._left and accuracy >= self._left[0]:
            found = self._session.lab.measure(self._measurement, [model], self._client)
            recovered = Recovered.from_array(found, self._shape)
            row = {"at": self._left.pop(0), "round": round, "accuracy": accuracy, "distance": recovered.distance}
            others = {name: getattr(recovered, name) for name in ("untrained", "own", "floor")}
            self._session.note(RECOVERED.name, row | others)
            self._session.keep_images(recovered.images, recovered.nearest)

    def facts(self) -> dict[str, Any]:
        """Who attacks, how often it did, and which accuracies were not reached."""
        done = len(self._session.tables[RECOVERED.name])
        return {"kind": "gan-recovery", "client": self._client, "attacked": done, "not_reached": list(self._left)}


def in_chains(method: Params) -> bool:
    """Whether clients of a method hand models on to one another."""
    return any(isinstance(each, TrainingChoice) and each.plugin.facts.chain for _, each in choices(method))
