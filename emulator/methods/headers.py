"""Headers: one client of each group trains for all, on its own data and on what the others distilled from theirs (S5 §IV-B).

After every formation of groups, each draws a header at random. All other members distil their data on their devices and send
the images to the header, client to client; when all headers have theirs, the round begins. In the rounds only headers work.

Who is away then, or is lost before its images have arrived, is left out. Where the header itself is lost, another takes its
place: the others keep their images and send them again. A header that is away in a later round sits it out, and its group with
it. Where it never comes back, the others choose a new one; its own data are gone with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from emulator.grouping.topology import Place
from emulator.learning.distillation import DistillationParams, check_distillable, distillation_flops
from emulator.ledger import Tag
from emulator.methods.forming import present, until_somebody
from emulator.methods.session import Models, ReceivedData, Session
from emulator.methods.slots import GroupSlots
from emulator.methods.training import Group
from emulator.rng import stream
from emulator.world.world import Steps, StepsTo

log = logging.getLogger(__name__)

PIXEL_BYTES = 1  # a number of an image on the wire: 8 bits (S5 §IV-C)
LABEL_BYTES = 4  # a number of a learned label; plain labels are not counted (S5 Eq. 6)


class Headers:
    """The headers of a run's groups, and what they were sent."""

    def __init__(self, session: Session, slots: GroupSlots) -> None:
        check_distillable(session.lab.sample_shape)
        self._session = session
        self._slots = slots
        if not isinstance(slots.training.params, DistillationParams):
            raise slots.training.broken(
                "with TrainingFacts(headers=True), its parameters derive from DistillationParams"
            )
        self._params = slots.training.params
        self._distilled: dict[int, ReceivedData] = {}  # what clients have distilled, and keep
        self._formed: Sequence[Group] = ()
        self._settled: dict[int, Group] = {}
        samples = session.lab.clients.samples
        few = int((samples <= self._params.images).sum())
        if few:
            message = "%d of %d clients have no more samples than the %d images to distil, and send them as they are"
            log.warning(message, few, len(samples), self._params.images)

    def settled(self, formed: Sequence[Group], t: int, model: Models) -> Steps:
        """The groups that have a header, each with the header as its one member; those that lack one get one first, if they can.

        Waits where there is nobody at all. Empty: nobody comes, and the run is over; ``model`` is the global model until then.
        """
        if formed is not self._formed:
            self._formed, self._settled = formed, {}
        env, world = self._session.env, self._session.world
        for number in [n for n, group in self._settled.items() if world.is_gone(group.members[0])]:
            del self._settled[number]
        while True:
            work = {g.number: env.process(self._settle(g, t)) for g in formed if g.number not in self._settled}
            yield env.all_of(work.values())
            self._settled |= {number: process.value for number, process in work.items() if process.value is not None}
            if self._settled or not (yield from until_somebody(self._session, self._slots, formed, model)):
                return [self._settled[g.number] for g in formed if g.number in self._settled]

    def _settle(self, group: Group, t: int) -> Steps:
        """Gives a group a header and the header what the others distil. Returns the group as it trains; None: nobody is there."""
        session, rng = self._session, stream(self._session.seed, "header", t, group.number)
        tried: set[int] = set()
        while (there := present(session, self._slots, group)) is not None:
            able = [c for c in there.members if c not in tried]
            if not able:
                return None
            header = int(rng.choice(able))
            tried.add(header)
            work = {c: session.env.process(self._contribute(there, c, header, t)) for c in there.members if c != header}
            yield session.env.all_of(work.values())
            if session.world.present([header], there.aggregator):
                received = tuple(process.value for process in work.values() if process.value is not None)
                self._note(group, header, received, t)
                return replace(group, members=(header,), kinds=(), received=received)
        return None

    def _contribute(self, group: Group, client: int, header: int, t: int) -> StepsTo[ReceivedData | None]:
        """A member's part: distilling its data, once, and sending the images. Returns them once they have arrived."""
        session, world, names = self._session, self._session.world, self._session.world.fleet.client_names
        counts, tag = session.lab.clients.label_counts, Tag("distillation", t, group.number)
        held, features = int(counts[client].sum()), math.prod(session.lab.sample_shape)
        if not held:
            return None
        if client not in self._distilled:
            flops = distillation_flops(held, self._params, features, counts.shape[1])
            images = yield from session.distil(client, self._params, flops, tag)
            if images is None:
                return None
            self._distilled[client] = images
        images = self._distilled[client]
        labels = LABEL_BYTES * counts.shape[1] if self._params.learn_labels else 0
        size_bytes, tag = images.samples * (PIXEL_BYTES * features + labels), tag.with_purpose("distilled-data")
        arrived = yield world.send(names[client], names[header], size_bytes, tag, via=group.aggregator)
        return images if arrived else None

    def _note(self, group: Group, header: int, received: Sequence[ReceivedData], t: int) -> None:
        """Keeps who is where, for the run folder."""
        counts, images = self._session.lab.clients.label_counts, {one.client: one.samples for one in received}
        kinds = group.kinds or (-1,) * len(group.members)
        self._session.note_places(
            Place(t, group.number, c, header, kind, int(counts[c].argmax()), int(counts[c].sum()), images.get(c, 0))
            for c, kind in zip(group.members, kinds, strict=True)
        )
