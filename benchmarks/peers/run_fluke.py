"""fluke: its FedAVG, one client after another; its processes are for GPUs, so that torch's threads use the cores."""

from __future__ import annotations

# First, because fluke imports torchvision, which must be led to load beside a CPU build of torch.
from emulator.learning import torchvision_cpu  # noqa: F401

# isort: split
import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from workload import BATCH, CLASSES, LEARNING_RATE, Rounds, asked, make_workload, network, test_loss


def main() -> None:
    told = asked()
    torch.set_num_threads(told.cores)
    work = make_workload(told.clients)

    def loader(x: torch.Tensor, y: torch.Tensor, batch: int) -> FastDataLoader:
        return FastDataLoader(x, y, num_labels=CLASSES, batch_size=batch, shuffle=True)

    own = [loader(torch.from_numpy(x), torch.from_numpy(y), BATCH) for x, y in work.parts()]
    test = loader(torch.from_numpy(work.test_x), torch.from_numpy(work.test_y), len(work.test_y))
    environment = FlukeENV()
    environment.set_inmemory(True)
    environment.set_evaluator(ClassificationEval(eval_every=told.rounds, n_classes=CLASSES))
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    client = DDict(batch_size=BATCH, local_epochs=1, loss="CrossEntropyLoss")
    client.update(optimizer=DDict(name="SGD", lr=LEARNING_RATE), scheduler=DDict(name="StepLR", step_size=1, gamma=1))
    algorithm = FedAVG(
        told.clients,
        DataSplitter(DummyDataContainer(own, [None] * told.clients, test, CLASSES)),
        DDict(client=client, server=DDict(weighted=True), model=network()),
    )
    rounds = Rounds(test_loss(algorithm.server.model, work))

    class Watch(FederationObserver):
        """Hears of every round that has ended."""

        def end_round(self, round: int) -> None:  # noqa: A002
            rounds.ended(lambda: test_loss(algorithm.server.model, work))

    algorithm.set_callbacks(Watch())
    algorithm.run(told.rounds, 1.0)
    rounds.print()


if __name__ == "__main__":
    main()
