"""pfl-research: federated averaging on its simulated backend, in as many processes as there are cores (torchrun starts them)."""

from __future__ import annotations

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from workload import BATCH, LEARNING_RATE, SAMPLES, Rounds, Workload, asked, make_workload, network, test_loss


class Network(nn.Module):
    """The network with what pfl asks of one: a loss, and metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x: Tensor) -> Tensor:
        answers: Tensor = self.layers(x)
        return answers

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Watch(TrainingProcessCallback):
    """Hears of every round that has ended."""

    def __init__(self, work: Workload, model: nn.Module) -> None:
        self.work, self.rounds = work, Rounds(test_loss(model, work))

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.rounds.ended(lambda: test_loss(model.pytorch_model, self.work))
        return False, Metrics()


def main() -> None:
    told = asked()
    work, module = make_workload(told.clients), Network()
    sets = [PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y))) for x, y in work.parts()]
    users = FederatedDataset(sets.__getitem__, MinimizeReuseUserSampler(range(told.clients)))
    watch = Watch(work, module)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        # It evaluates in every round whose number is divisible by the frequency: in the warm-up alone.
        NNAlgorithmParams(told.rounds, evaluation_frequency=10**6, train_cohort_size=told.clients, val_cohort_size=0),
        SimulatedBackend(users, users),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=SAMPLES),
        [watch],
    )
    if pytorch_ops.distributed.global_rank == 0:
        watch.rounds.print()


if __name__ == "__main__":
    main()
