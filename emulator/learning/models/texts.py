"""Models of language: the tokens of a text in, a score for every token that may come next out.

A sample is a sequence of tokens, int64 [length], each in [0, classes): the classes of the data set are its vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from emulator.contracts.learning import models
from emulator.errors import InputError
from emulator.learning.data.arrays import is_text
from emulator.learning.models.images import KEY
from emulator.registry import Params

if TYPE_CHECKING:
    from torch import nn

Width = Annotated[int, Field(ge=1, le=100_000)]
Layers = Annotated[int, Field(ge=1, le=100)]
Shape = tuple[int, ...]


class CharParams(Params):
    """Size of a recurrent network that reads characters."""

    embedding: Width = Field(8, description="numbers that stand for a token")
    hidden: Width = Field(256, description="numbers that a recurrent layer remembers")
    layers: Layers = Field(2, description="recurrent layers")


class WordParams(Params):
    """Size of a recurrent network that reads words."""

    embedding: Width = Field(96, description="numbers that stand for a token, and that scores are made of")
    hidden: Width = Field(670, description="numbers that a recurrent layer remembers")
    layers: Layers = Field(1, description="recurrent layers")


@models.register("char-lstm", CharParams)
def char_lstm(shape: Shape, classes: int, params: CharParams) -> nn.Module:
    """The next character by an LSTM of two layers over an embedding (McMahan et al. 2017; Caldas et al. 2018, LEAF).

    S4 leaves its model of Shakespeare to its supplement; the sizes are LEAF's. 819,920 parameters for a vocabulary of 80.
    """
    from torch import nn

    _check_tokens("char-lstm", shape)
    recurrent = nn.LSTM(params.embedding, params.hidden, params.layers, batch_first=True)
    return _reader(classes, params.embedding, recurrent)


@models.register("char-gru", CharParams)
def char_gru(shape: Shape, classes: int, params: CharParams) -> nn.Module:
    """As char-lstm with gated recurrent units, which have three gates' worth of weights in place of four (Cho et al. 2014)."""
    from torch import nn

    _check_tokens("char-gru", shape)
    recurrent = nn.GRU(params.embedding, params.hidden, params.layers, batch_first=True)
    return _reader(classes, params.embedding, recurrent)


@models.register("word-lstm", WordParams)
def word_lstm(shape: Shape, classes: int, params: WordParams) -> nn.Module:
    """The next word by an LSTM, with its state brought down to the embedding's size first (Reddi et al. 2021, StackOverflow).

    4,053,428 parameters for a vocabulary of 10,004: those published and 2,680 more, because torch has two biases for every gate.
    """
    from torch import nn

    _check_tokens("word-lstm", shape)
    recurrent = nn.LSTM(params.embedding, params.hidden, params.layers, batch_first=True)
    return _reader(classes, params.embedding, recurrent, nn.Linear(params.hidden, params.embedding))


def _reader(classes: int, embedding: int, recurrent: nn.RNNBase, *between: nn.Linear) -> nn.Module:
    from torch import nn

    from emulator.learning.blocks import LastStep

    width = between[-1].out_features if between else recurrent.hidden_size
    return nn.Sequential(nn.Embedding(classes, embedding), recurrent, LastStep(), *between, nn.Linear(width, classes))


def _check_tokens(name: str, shape: Shape) -> None:
    if not is_text(shape):
        raise InputError(f"{name} takes texts (tokens of one length); the samples have the shape {shape}", KEY)
