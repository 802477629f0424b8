"""Modules as users write them: each with the shape of its samples and whether they are tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from emulator.learning.blocks import Attention, LastStep, PlacedEmbedding

IMAGE, COLOUR, TEXT = (1, 8, 8), (3, 7, 6), (6,)


class Tutorial(nn.Module):
    """Functions in place of layers, sizes taken from the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 8, 3, padding="same")
        self.third, self.last = nn.Linear(8, 12), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), (3, 3))
        x = x.reshape(x.size(0), -1)
        return self.last(F.relu(self.third(x)))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """Takes its result from the outputs, or from the state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], from_state: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.recurrent, self.last = kind(6, 7, 2, batch_first=True), nn.Linear(7, 10)
        self._from_state = from_state

    def forward(self, x: Tensor) -> Tensor:
        said, state = self.recurrent(self.embedding(x))
        if not self._from_state:
            return self.last(said[:, -1])  # type: ignore[no-any-return]
        hidden = state[0] if isinstance(self.recurrent, nn.LSTM) else state
        return self.last(hidden[-1])  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A parameter that no layer owns, and attention written out."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(10, 8), nn.Parameter(torch.randn(6, 8))
        self.norm, self.parts, self.mixed = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.dropout, self.last = nn.Dropout(dropout), nn.Linear(8, 10)
        self.register_buffer("scale", torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x) + self.places
        samples, steps, width = h.shape
        queries, keys, values = self.parts(self.norm(h)).view(samples, steps, 3, 2, 4).permute(2, 0, 3, 1, 4)
        looked = (queries @ keys.transpose(2, 3) * self.scale).softmax(3) @ values
        h = h + self.dropout(self.mixed(looked.transpose(1, 2).reshape(samples, steps, width)))
        return self.last(F.gelu(h).mean(1))  # type: ignore[no-any-return]


class HeadsOfTorch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.squeeze(1)
        said, _ = self.heads(x, x, x, need_weights=False)
        return self.last(said.mean(1))  # type: ignore[no-any-return]


class Split(nn.Module):
    """Two ways, one of which has a stride, then a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.BatchNorm2d(5), nn.ReLU())
        self.other = nn.Conv2d(3, 5, 1, stride=2, bias=False)
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(5, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.flatten(self.pool(torch.relu(self.one(x) + self.other(x))), 1))  # type: ignore[no-any-return]


def twice(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.Linear(64, 10))


def gates() -> nn.Module:
    """Activations whose last values torch rounds differently, of odd sizes."""
    activations = [nn.SiLU(), nn.GELU(), nn.ELU(), nn.Sigmoid(), nn.Softplus()]
    layers: list[nn.Module] = [nn.Conv2d(3, 5, 3), nn.SiLU(), nn.AvgPool2d(2), nn.GELU(), nn.Flatten()]
    width = 20
    for size, activation in zip((13, 11, 9, 7, 5), activations, strict=True):
        layers += [nn.Linear(width, size), activation]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 10))


Example = tuple[Callable[[], nn.Module], tuple[int, ...]]
EXAMPLES: dict[str, Example] = {
    "tutorial": (Tutorial, IMAGE),
    "batch norm of vectors": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 10)),
        IMAGE,
    ),
    "batch norm of images": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6, momentum=0.3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 10)
        ),
        IMAGE,
    ),
    "split": (Split, COLOUR),
    "lstm": (lambda: Recurrent(nn.LSTM, from_state=False), TEXT),
    "lstm state": (lambda: Recurrent(nn.LSTM, from_state=True), TEXT),
    "gru": (lambda: Recurrent(nn.GRU, from_state=False), TEXT),
    "gru state": (lambda: Recurrent(nn.GRU, from_state=True), TEXT),
    "gru without biases": (
        lambda: nn.Sequential(
            nn.Embedding(10, 5, padding_idx=0), nn.GRU(5, 7, bias=False, batch_first=True), LastStep(), nn.Linear(7, 10)
        ),
        TEXT,
    ),
    "transformer": (Transformer, TEXT),
    "transformer with dropout": (lambda: Transformer(0.3), TEXT),
    "blocks": (
        lambda: nn.Sequential(
            PlacedEmbedding(10, 6, 8), nn.LayerNorm((6, 8)), Attention(8, 2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, 10)
        ),
        TEXT,
    ),
    "encoder of torch": (
        lambda: nn.Sequential(
            PlacedEmbedding(10, 6, 8), nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True), nn.Flatten(),
            nn.Linear(48, 10),
        ),
        TEXT,
    ),
    "heads of torch": (HeadsOfTorch, IMAGE),
    "gates": (gates, COLOUR),
    "convolution over time": (
        lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(248, 10)),
        IMAGE,
    ),
    "a layer twice": (lambda: twice(nn.Linear(64, 64)), IMAGE),
    "pooling that overlaps": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, groups=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Dropout(0.4),
            nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 4 * 4, 10),
        ),
        COLOUR,
    ),
}  # fmt: skip


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(x.flatten(1))
        return scores if scores.sum() > 0 else -scores


class Drawing(Deciding):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.dropout(x.flatten(1), 0.5, self.training))  # type: ignore[no-any-return]


class Mixing(Deciding):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(x.flatten(1) - x.flatten(1).mean(0))  # type: ignore[no-any-return]


class HiddenNorm(Deciding):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.own = nn.BatchNorm1d(64), nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(x.flatten(1)) * self.own)  # type: ignore[no-any-return]


class Counting(Deciding):
    def forward(self, x: Tensor) -> Tensor:
        self.batches = getattr(self, "batches", 0) + self.training
        return self.last(x.flatten(1))  # type: ignore[no-any-return]


class BothStates(Recurrent):
    def forward(self, x: Tensor) -> Tensor:
        _, (hidden, _) = self.recurrent(self.embedding(x))
        return self.last(hidden[0] + hidden[1])  # type: ignore[no-any-return]


# What cannot be stacked, and a part of what is said about it.
OTHERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "decides by values": (Deciding, IMAGE, "decides by the values of samples"),
    "draws by itself": (Drawing, IMAGE, "draws random numbers by itself; dropout can be an nn.Dropout layer"),
    "samples influence each other": (Mixing, IMAGE, "its samples may influence each other"),
    "batch norm within": (HiddenNorm, IMAGE, "batch normalisation is used in a way that torch.fx cannot follow"),
    "two states": (lambda: BothStates(nn.LSTM, from_state=True), TEXT, "of a recurrent layer it uses more than"),
    "two directions": (
        lambda: nn.Sequential(
            nn.Embedding(10, 4), nn.GRU(4, 3, bidirectional=True, batch_first=True), LastStep(), nn.Linear(6, 10)
        ),
        TEXT,
        "its recurrent layer is not an LSTM or GRU of one direction",
    ),
    "counts": (Counting, IMAGE, "its forward pass changes attributes of the module"),
    "mean of all statistics": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Flatten(), nn.Linear(144, 10)),
        IMAGE,
        "batch normalisation has no running statistics",
    ),
}
