"""A model and its local rules, tried on a few samples before a run begins.

What would stop a run, or give it figures that mean nothing, is said while nothing is lost: scores of another shape than the
labels ask for, a loss that is not finite, no gradient, results that differ although nothing that determines them does.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from emulator import plugins
from emulator.contracts.learning import LocalRule, Rule
from emulator.errors import InputError
from emulator.learning.flat import FlatModel, as_trained
from emulator.learning.trainer import Trainer, TrainingData, TrainJob

log = logging.getLogger(__name__)

SAMPLES = 8  # that a model is tried on
STEP_SIZE = 1e-3  # at most: what a large one does to a model is no fault of the model

TWICE = "keep what it remembers in parameters and buffers, and draw from torch's own random stream, which is seeded"


def check_module(module: object, key: str) -> None:
    """Raises `InputError`, about ``key``, where this is no module whose state can be one vector of floats."""
    if not isinstance(module, nn.Module):
        raise InputError(f"the model is a {type(module).__name__}, not a torch.nn.Module", key)
    named = [(f"parameter '{name}'", p) for name, p in module.named_parameters()]
    if not named:
        raise InputError("the model has no parameters, so there is nothing to train", key)
    for name, tensor in [*named, *((f"buffer '{name}'", b) for name, b in module.named_buffers())]:
        if is_lazy(tensor):
            raise InputError(f"{name} of the model has no size yet; give its layers their sizes", key)
        if tensor.device.type != "cpu":
            where = f"{name} of the model is on '{tensor.device}'"
            raise InputError(f"{where}; make models on the CPU: they are moved to where they are computed", key)
        if tensor.dtype != torch.float32 and (name.startswith("parameter") or tensor.is_floating_point()):
            raise InputError(f"{name} of the model is of type {_kind(tensor)}; it must be float32", key)


def check_same(one: nn.Module, other: nn.Module, key: str) -> None:
    """Raises `InputError`, about ``key``, where a model that was made twice from the same seed is not the same."""
    pairs = itertools.zip_longest(*(itertools.chain(m.parameters(), m.buffers()) for m in (one, other)))
    if any(a is None or b is None or not torch.equal(a, b) for a, b in pairs):
        message = "made twice from the same seed, the model has other values each time"
        raise InputError(f"{message}; draw them from torch's own random stream, which is seeded", key)


def try_model(flat: FlatModel, state: Tensor, x: Tensor, y: Tensor, classes: int, key: str) -> None:
    """One forward and backward pass, and two tests. Raises `InputError`, about ``key``, where the model does not bear that."""
    if not torch.isfinite(x).all():
        raise InputError("there are samples with values that are not finite (nan or infinite)", "data.set")
    module = flat.module
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        flat.state.copy_(state)
        module.train()
        loss = nn.functional.cross_entropy(scores_of(module, as_trained(x), classes, key), y)
        if not torch.isfinite(loss):
            raise InputError(f"its loss on {len(y)} samples is {float(loss.detach())}, before any training", key)
        _check_gradient(loss, list(module.parameters()), key)
        flat.state.copy_(state)
        module.eval()
        with torch.inference_mode():
            first, second = (scores_of(module, x, classes, key) for _ in range(2))
    if not torch.equal(first, second):
        raise InputError(f"in a test it gives other scores for the same samples each time; {TWICE}", key)


def scores_of(module: nn.Module, x: Tensor, classes: int, key: str) -> Tensor:
    """A model's scores of samples. Raises `InputError`, about ``key``, where these are not a row of scores for each sample."""
    wanted = f"it must give one row of {classes} scores for each sample"
    with plugins.asking(f"the model cannot take {_batch(x)}", key):
        scores = module(x)
    if not isinstance(scores, Tensor):
        raise InputError(
            f"for {_batch(x)} the model gives a {type(scores).__name__}; {wanted}: {[len(x), classes]}", key
        )
    if tuple(scores.shape) != (len(x), classes):
        raise InputError(f"for {_batch(x)} the model gives {list(scores.shape)}; {wanted}: {[len(x), classes]}", key)
    if scores.dtype != torch.float32:
        raise InputError(f"the scores of the model are of type {_kind(scores)}; they must be float32", key)
    return scores


def _check_gradient(loss: Tensor, parameters: Sequence[nn.Parameter], key: str) -> None:
    trainable = [p for p in parameters if p.requires_grad]
    found: Sequence[Tensor | None] = []
    if loss.requires_grad and trainable:
        with plugins.asking("the model has no gradient", key):
            found = torch.autograd.grad(loss, trainable, allow_unused=True)
    gradients = [g for g in found if g is not None]
    if not gradients:
        message = "the model's scores depend on none of its parameters, so it has no gradient and learns nothing"
        raise InputError(f"{message}; perhaps forward() detaches them, or runs under torch.no_grad()", key)
    if not all(torch.isfinite(g).all() for g in gradients):
        raise InputError("the gradient of its loss is not finite, before any training", key)


def try_rule(trainer: Trainer, state: Tensor, data: TrainingData, rule: LocalRule, keys: tuple[str, str]) -> None:
    """Takes one small step on the samples of client 0 of ``data``, twice. ``keys`` are those of the model and of the rule.

    Raises `InputError` where that cannot be done, or where the second time gives something else.
    """
    key, own_key = keys
    made, params = rule(), rule.params
    _check_elementwise(rule.kind, made, own_key)
    if frozen := trainer.frozen(rule):
        message = f"parameter '{frozen[0]}' of the model is frozen (requires_grad=False), but '{rule.kind}' trains it"
        raise InputError(f"{message}; make it a buffer, or train the last layer alone with 'classifier-sgd'", key)
    step = {"epochs": 1, "learning_rate": min(params.learning_rate, STEP_SIZE)}
    nothing = None if made.remember is None else torch.zeros_like(state)
    gentle = rule.with_params(params.model_copy(update=step))
    job = TrainJob(state, 0, gentle, 1, 0, nothing, nothing)
    whole, trainer.data = trainer.data, data
    try:
        ((_, first),), ((_, second),) = (list(trainer.train([job])) for _ in range(2))
    finally:
        trainer.data = whole
    if not torch.equal(first.state, second.state):
        what = "trained twice from the same state on the same samples, the model ends with other weights each time"
        raise InputError(f"{what}; {TWICE}", key)


def _check_elementwise(kind: str, rule: Rule, key: str) -> None:
    """Raises `InputError` where a rule's functions are not elementwise: then it would matter who is trained beside whom."""
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.rand(6, generator=generator) for _ in range(5)]
    functions: dict[str, Callable[..., Tensor]] = {"direction": rule.direction}
    if (remember := rule.remember) is not None:
        functions["remember"] = lambda end, anchor, shared, own, _: remember(end, anchor, shared, own, 0.5)
    optimiser = rule.optimiser
    if (move := optimiser.move) is not None:
        numbers = [torch.tensor(number) for number in optimiser.numbers(1)]
        functions["move"] = lambda direction, *_: move(
            direction, [torch.zeros_like(direction) for _ in range(optimiser.vectors)], *numbers
        )
    for name, function in functions.items():
        whole, again, half = (function(*(v[:n].clone() for v in vectors)) for n in (6, 6, 3))
        if not isinstance(whole, Tensor) or whole.shape != (6,) or whole.dtype != torch.float32:
            what = f"{_kind(whole)} {list(whole.shape)}" if isinstance(whole, Tensor) else f"a {type(whole).__name__}"
            raise InputError(f"'{kind}': {name} gives {what} for vectors of 6 values; it must give float32 [6]", key)
        if not torch.isfinite(whole).all():
            raise InputError(f"'{kind}': {name} gives values that are not finite for vectors of small numbers", key)
        if not torch.equal(whole, again):
            raise InputError(f"'{kind}': {name} gives other values for the same vectors each time", key)
        if not torch.allclose(whole[:3], half):
            raise InputError(
                f"'{kind}': {name} is not elementwise: a value depends on others than those in its place", key
            )


def warn_of_single_samples(
    flat: FlatModel, state: Tensor, data: TrainingData, sizes: Sequence[int], batch_size: int, key: str
) -> None:
    """Says so where a model cannot be trained on one sample, as with BatchNorm, and clients have a last batch of one.

    ``sizes`` are the samples of each client.
    """
    alone = [client for client, size in enumerate(sizes) if size % batch_size == 1]
    if not alone:
        return
    flat.state.copy_(state)
    flat.module.train()
    try:
        with plugins.asking("the model cannot be trained on a single sample", key):
            flat.module(as_trained(data.x[int(data.of(alone[0])[0])][None]))
    except Exception as error:  # noqa: BLE001 (whatever a model says to that)
        log.warning(
            "%s; %d clients have a last batch of one sample (the first: client %d, %d samples in batches of %d), and the run "
            "fails when one of them trains: another batch_size may help, or GroupNorm in place of BatchNorm",
            plugins.blamed(error) or error, len(alone), alone[0], sizes[alone[0]], batch_size,
        )  # fmt: skip


def _batch(x: Tensor) -> str:
    return f"a batch of {len(x)} sample{'' if len(x) == 1 else 's'} {list(x.shape)}"


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
