"""Training on GPUs: in the run's own process, one thread for each, with as many stacks side by side as its memory holds.

The jobs of a wave go to the GPUs by their numbers, and on a GPU to its stacks in the same way. A stack has the same number of
copies everywhere, whatever memory there is. What memory decides is how many stacks take their steps in turn, each on a CUDA
stream of its own. No stack knows of another, so a client's result depends neither on their number nor on that of the GPUs.

A wave begins with as many stacks as it has clients for. Where memory does not hold them, half of them begin again with the
clients that are not done, and from then on there are no more.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import nn

from emulator.learning.device import Place, within_memory
from emulator.learning.distillation import DistilJob, distil_client
from emulator.learning.extra_samples import Block
from emulator.learning.trainer import COPIES, TrainedState, Trainer, TrainingData, TrainJob

log = logging.getLogger(__name__)

T = TypeVar("T")
J = TypeVar("J")
Numbered = tuple[int, T]


class DeviceTrainer:
    """Trains on one device, in as many stacks at a time as its memory holds. ``data`` is on that device."""

    def __init__(self, module: nn.Module, data: TrainingData, seed: int, forward_flops: float, place: Place) -> None:
        self.data = data
        self.place = place
        self._setup = (module, seed, forward_flops)
        self._trainers: list[Trainer] = []
        self._streams: list[torch.cuda.Stream | None] = []  # of each trainer, on a GPU
        self._most: int | None = None  # stacks at a time, where memory has set a limit

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[Numbered[TrainedState]]:
        """As `Trainer.train`. Raises `HflError` where the device has too little memory for a single stack."""
        left = dict(enumerate(jobs))
        while left:
            width = self._width(list(left.values()))
            enough = within_memory(self.place, "a training") if width == 1 else contextlib.nullcontext()
            try:
                with enough:
                    for number, trained in self._side_by_side(dict(left), width):
                        del left[number]
                        yield number, trained
            except torch.OutOfMemoryError:
                self._most = width // 2
            if left:  # only now: while the error was handled, it held on to what is to be freed
                self._free()

    def _width(self, jobs: Sequence[TrainJob]) -> int:
        """How many stacks are to train these jobs; those that are not stacked are trained one after another."""
        first = self._trainer(0)
        stacked = sum(first.stacks(job.rule.params.batch_size) for job in jobs)
        wanted = max(1, -(-stacked // COPIES))
        return wanted if self._most is None else min(wanted, self._most)

    def _trainer(self, number: int) -> Trainer:
        while len(self._trainers) <= number:
            module, seed, forward_flops = self._setup
            self._trainers.append(Trainer(copy.deepcopy(module), self.data, seed, forward_flops, self.place))
            self._streams.append(_new_stream(self.place.device))
        trainer = self._trainers[number]
        trainer.data = self.data
        return trainer

    def _side_by_side(self, jobs: dict[int, TrainJob], width: int) -> Iterator[Numbered[TrainedState]]:
        """Trains jobs in so many stacks, each of which takes a step in its turn."""
        numbers = list(jobs)
        shares = [numbers[first::width] for first in range(width)]
        at_work = {k: self._trainer(k).steps([jobs[n] for n in share]) for k, share in enumerate(shares)}
        for stream in filter(None, self._streams):
            stream.wait_stream(torch.cuda.current_stream(self.place.device))  # which copies the data
        while at_work:
            for k, steps in list(at_work.items()):
                with torch.cuda.stream(self._streams[k]):
                    try:
                        result = next(steps)
                    except StopIteration:
                        del at_work[k]
                        continue
                if result is not None:
                    yield shares[k][result[0]], result[1]

    def _free(self) -> None:
        """Lets go of stacks for which there is no room."""
        del self._trainers[self._most :], self._streams[self._most :]
        log.info("%s has room for %s stacks of %d clients at a time", self.place.device, self._most, COPIES)
        if self.place.device.type == "cuda":
            torch.cuda.empty_cache()


def _new_stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


class DevicePool:
    """Trainers on devices of this machine, each in a thread of its own. They end with each wave."""

    def __init__(
        self, places: Sequence[Place], module: nn.Module, data: TrainingData, seed: int, forward_flops: float
    ) -> None:
        self._seed = seed
        self._trainers = [DeviceTrainer(module, data.to(place.device), seed, forward_flops, place) for place in places]

    def close(self) -> None:
        """Frees what the devices hold."""
        self._trainers.clear()

    def train(self, jobs: Sequence[TrainJob], steps: Sequence[int]) -> Iterator[Numbered[TrainedState]]:
        """As `Trainer.train`. Raises `HflError` where a device has too little memory."""
        return self._divided(jobs, lambda trainer, share: trainer.train(share))

    def distil(self, jobs: Sequence[DistilJob], sizes: Sequence[float]) -> Iterator[Numbered[Block]]:
        """Distils clients' data; yields the number of each job and its result, in the order in which they end.

        Raises as `train`.
        """

        def distilled(trainer: DeviceTrainer, share: Sequence[DistilJob]) -> Iterator[Numbered[Block]]:
            data = trainer.data
            for number, job in enumerate(share):
                with within_memory(trainer.place, "distilling a client's data"):
                    block = distil_client(data.x, data.y, data.parts, job, self._seed)
                yield number, block

        return self._divided(jobs, distilled)

    def _divided(
        self, jobs: Sequence[J], work: Callable[[DeviceTrainer, Sequence[J]], Iterator[Numbered[T]]]
    ) -> Iterator[Numbered[T]]:
        """Has every device do its share of jobs: each as many, by their numbers."""
        count = len(self._trainers)
        if count == 1:
            yield from work(self._trainers[0], jobs)
            return
        done: queue.SimpleQueue[Numbered[T] | BaseException | None] = queue.SimpleQueue()
        stopped = threading.Event()

        def do(first: int) -> None:
            torch.set_num_threads(1)  # which is said of each thread
            try:
                with _current(self._trainers[first].place.device):
                    for number, result in work(self._trainers[first], jobs[first::count]):
                        done.put((first + number * count, result))
                        if stopped.is_set():
                            return
            except BaseException as error:  # noqa: BLE001 (raised again by whoever waits for it)
                done.put(error)
            else:
                done.put(None)

        threads = [threading.Thread(target=do, args=(first,), daemon=True) for first in range(min(count, len(jobs)))]
        try:
            for thread in threads:
                thread.start()
            left = len(threads)
            while left:
                answer = done.get()
                if isinstance(answer, BaseException):
                    raise answer
                if answer is None:
                    left -= 1
                else:
                    yield answer
        finally:
            stopped.set()
            for thread in threads:
                thread.join()


def _current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """A block in which a GPU is the one that a thread means where it names none."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
