from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from patience import PATIENCE_S
from pydantic import ValidationError
from torch import nn

from emulator.contracts.learning import data_sets, models
from emulator.errors import InputError
from emulator.learning.blocks import Residual

GREY, COLOUR, TINY = (1, 28, 28), (3, 32, 32), (1, 8, 8)


def build(kind: str, shape: tuple[int, ...], classes: int = 10, **params: object) -> nn.Module:
    plugin = models[kind]
    module = plugin.function(shape, classes, plugin.params.model_validate(params))
    assert isinstance(module, nn.Module)
    return module


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def weights_by_layer(module: nn.Module) -> list[int]:
    return [p.numel() for name, p in module.named_parameters() if not name.endswith("bias")]


SMALL = [
    *("mlp", "lenet5", "cnn", "cnn-mnist", "cnn-fashion-mnist", "cnn-cifar10", "resnet-1block", "resnet-3block"),
    *("cnn-fedseq", "cnn-hfldd", "audio-cnn"),
]
PLAIN = (
    *(nn.Conv2d, nn.Linear, nn.ReLU, nn.MaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Dropout),
    *(nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.Identity, nn.Sequential, Residual),
)


@pytest.mark.parametrize(
    ("kind", "shape"), [*((kind, GREY) for kind in SMALL if kind != "cnn-hfldd"), *((kind, COLOUR) for kind in SMALL)]
)
def test_scores_for_every_class(kind: str, shape: tuple[int, ...]) -> None:
    module = build(kind, shape, classes=7)
    assert module(torch.zeros(3, *shape)).shape == (3, 7)
    assert all(type(m) in PLAIN for m in module.modules())


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on batches as small as these, threads that wait for each other take far longer
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("kind", ["mlp", "cnn", "resnet-1block", "resnet-3block"])
def test_models_that_learn_the_digits(kind: str) -> None:
    data = data_sets["digits"].function(data_sets["digits"].params())
    x, y = torch.from_numpy(data.x_train[:128]), torch.from_numpy(data.y_train[:128])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build(kind, TINY)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(module(x), y)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    assert 2 < losses[0] < 3  # about ln 10: a fresh model knows nothing
    assert losses[-1] < 1.1


def test_the_networks_of_s4_and_s5_for_cifar10() -> None:
    hfldd = build("cnn-hfldd", COLOUR)
    assert parameters(hfldd) == parameters(build("cnn-hfldd", COLOUR, norm="none")) == 1_020_160  # S5 §V-A
    norms = [m.num_features for m in hfldd.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert norms == [16, 32, 64, 128, 512, 512, 128]  # S5 Fig. 4 names BN
    fedseq = build("cnn-fedseq", COLOUR)
    assert weights_by_layer(fedseq) == [3 * 25 * 64, 64 * 25 * 64, 1600 * 384, 384 * 192, 192 * 10]
    assert parameters(fedseq) == 797_962


def test_the_network_for_sound_has_five_layers_whatever_the_shape() -> None:
    for shape in ((1, 98, 40), (1, 1, 8), (2, 5, 3)):
        module = build("audio-cnn", shape, classes=35, channels=[4, 4, 8, 8])
        assert weights_by_layer(module) == [shape[0] * 9 * 4, 4 * 9 * 4, 4 * 9 * 8, 8 * 9 * 8, 8 * 35]
        assert module(torch.zeros(2, *shape)).shape == (2, 35)


def test_the_network_for_movements_has_three_convolutions_over_time_and_two_layers() -> None:
    module = build("har-cnn", (6, 1, 100), classes=12)
    assert weights_by_layer(module) == [6 * 5 * 32, 32 * 5 * 64, 64 * 5 * 64, 64 * 9 * 128, 128 * 12]
    assert module(torch.zeros(2, 6, 1, 100)).shape == (2, 12)
    rows = build("har-cnn", (1, 6, 100), classes=12)
    assert weights_by_layer(rows) == weights_by_layer(module)  # sensors as rows in place of channels
    assert rows(torch.zeros(2, 1, 6, 100)).shape == (2, 12)
    with pytest.raises(InputError, match="at least 36 time steps; the samples have 35"):
        build("har-cnn", (6, 1, 35))


def test_lenet5_has_the_published_size() -> None:
    module = build("lenet5", GREY)
    assert parameters(module) == 44_426
    assert weights_by_layer(module) == [150, 2400, 256 * 120, 120 * 84, 84 * 10]


@pytest.mark.parametrize(
    ("kind", "shape", "layers"),
    [
        ("cnn-mnist", GREY, [500, 25_000, 8000]),
        ("cnn-fashion-mnist", GREY, [400, 12_800, 5120]),
        ("cnn-cifar10", COLOUR, [450, 2400, 4000]),
    ],
)
def test_the_networks_of_s3_have_the_published_sizes(kind: str, shape: tuple[int, ...], layers: list[int]) -> None:
    assert weights_by_layer(build(kind, shape)) == layers


def test_mlp_layers() -> None:
    assert weights_by_layer(build("mlp", TINY, hidden=[30, 20])) == [64 * 30, 30 * 20, 20 * 10]
    assert parameters(build("mlp", TINY, hidden=[])) == 650
    dropped = build("mlp", TINY, hidden=[30, 20], dropout=0.25)
    assert [m.p for m in dropped.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.25]


def test_cnn_layers() -> None:
    module = build("cnn", COLOUR, channels=[4, 8, 8], kernel=5, padding="none", pool=1, hidden=[12], dropout=0.5)
    assert weights_by_layer(module) == [4 * 3 * 25, 8 * 4 * 25, 8 * 8 * 25, 8 * 20 * 20 * 12, 120]
    assert not any(isinstance(m, nn.MaxPool2d) for m in module.modules())
    assert module(torch.zeros(1, *COLOUR)).shape == (1, 10)
    wide = build("cnn", (2, 9, 30), padding="same", kernel=7, pool=3, channels=[5])
    assert wide(torch.zeros(1, 2, 9, 30)).shape == (1, 10)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_small_resnets(norm: str) -> None:
    one, three = (build(k, COLOUR, width=16, norm=norm) for k in ("resnet-1block", "resnet-3block"))
    assert [sum(isinstance(m, Residual) for m in module.modules()) for module in (one, three)] == [1, 3]

    def block(n: int) -> int:  # convolutions of 3×3, 3×3 and 1×1 from n to 2n channels, without biases
        return 9 * n * 2 * n + 9 * 2 * n * 2 * n + n * 2 * n

    def norms(n: int) -> int:  # three of them with a weight and a bias for each of 2n channels
        return 3 * 2 * 2 * n

    assert parameters(one) == 27 * 16 + 32 + block(16) + norms(16) + 330
    three_blocks = sum(block(n) + norms(n) for n in (16, 32, 64))
    assert parameters(three) == 27 * 16 + 32 + three_blocks + 1290
    kind = nn.GroupNorm if norm == "group" else nn.BatchNorm2d
    assert sum(isinstance(m, kind) for m in three.modules()) == 10
    assert one(torch.zeros(2, *COLOUR)).shape == three(torch.zeros(2, *COLOUR)).shape == (2, 10)


def test_residual_is_a_sum() -> None:
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Residual(nn.ReLU(), nn.Identity())(x), x.relu() + x)


@pytest.mark.parametrize(
    ("kind", "shape", "text"),
    [
        ("lenet5", TINY, "at least 16×16 pixels; the data set has 8×8"),
        ("cnn-mnist", (1, 28, 15), "at least 16×16"),
        ("cnn", (1, 3, 3), "at least 4×4"),
        ("resnet18", (3, 16, 16), "at least 17×17"),
        ("vgg11", (3, 31, 31), "at least 32×32"),
        ("lenet5", (64,), r"takes images .* shape \(64,\)"),
        ("resnet-1block", (64,), "takes images"),
    ],
)
def test_samples_that_a_model_cannot_take(kind: str, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        build(kind, shape)
    assert caught.value.key == "model"


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("mlp", {"hidden": [0]}),
        ("mlp", {"hidden": [1.5]}),
        ("mlp", {"hidden": 64}),
        ("mlp", {"dropout": 1.0}),
        ("cnn", {"channels": []}),
        ("cnn", {"kernel": 4}),
        ("resnet-1block", {"width": 12}),
        ("module", {}),
        ("module", {"factory": "package.module"}),
        ("module", {"factory": "../module:function"}),
    ],
)
def test_parameters_that_make_no_sense(kind: str, params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        models[kind].params.model_validate(params)


# torchvision


def test_resnet18_is_that_of_torchvision() -> None:
    with torch.device("meta"):
        assert parameters(build("resnet18", COLOUR)) == 11_181_642
        grey = build("resnet18", GREY)
        grouped = build("resnet18", COLOUR, norm="group")
        assert grey(torch.zeros(2, *GREY)).shape == (2, 10)
        assert grouped(torch.zeros(1, *COLOUR)).shape == (1, 10)
    assert parameters(grey) == 11_181_642 - 2 * 64 * 49
    assert not any(isinstance(m, nn.BatchNorm2d) for m in grouped.modules())


def test_vgg11_is_that_of_torchvision() -> None:
    with torch.device("meta"):
        assert parameters(build("vgg11", COLOUR)) == 128_807_306
        grey = build("vgg11", (1, 32, 32))
        assert grey(torch.zeros(2, 1, 32, 32)).shape == (2, 10)
    assert parameters(grey) == 128_807_306 - 2 * 64 * 9


def python(code: str) -> str:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=root, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_torchvision_can_be_imported_beside_a_cpu_torch() -> None:
    code = """
from emulator.learning.torchvision_cpu import torchvision
import torchvision as again, torchvision.datasets, torchvision.models
print(again is torchvision, hasattr(torchvision.datasets, "MNIST"))
"""
    assert python(code) == "True True"


def test_torchvision_that_fails_otherwise_is_not_repaired() -> None:
    code = """
import importlib
real = importlib.import_module
def fake(name, package=None):
    if name == "torchvision":
        raise RuntimeError("something else")
    return real(name, package)
importlib.import_module = fake
try:
    import emulator.learning.torchvision_cpu
except RuntimeError as error:
    print(error)
"""
    assert python(code) == "something else"


def test_naming_every_choice_imports_nothing_heavy() -> None:
    code = """
import sys
from emulator.contracts.learning import data_sets, models, partitions
import emulator.learning.facts
names = [r.names() for r in (data_sets, models, partitions)]
assert all(names), names
print([m for m in ("torch", "torchvision", "sklearn", "pandas", "matplotlib", "scipy") if m in sys.modules])
"""
    assert python(code) == "[]"


def test_every_model_has_a_summary() -> None:
    assert all(models[name].summary.endswith(".") for name in models.names())


# Models of the user's own


BROKEN = {
    "import": b"import a_package_that_is_not_there\n",
    "syntax": b"\n\ndef linear(:\n",
    "latin": b"x = 'caf\xe9'\n",
    "null": b"x = 1\0\n",
    "exit": b"import sys\nsys.exit(0)\n",
    "base": b"class Own(BaseException): ...\nraise Own\n",
    "deep": b"def f(): return f()\nf()\n",
    "getter": b"def __getattr__(name): raise ValueError(name)\n",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_models.py").write_text(
        "import math\n"
        "from torch import nn\n"
        "number = 3\n"
        "def linear(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))\n"
        "def nothing(shape, classes):\n"
        "    return None\n"
        "def failing(shape, classes):\n"
        "    return nn.Linear(shape, classes)\n"
        "def ending(shape, classes):\n"
        "    raise SystemExit(0)\n"
    )
    for name, text in BROKEN.items():
        (tmp_path / f"own_{name}.py").write_bytes(text)


@pytest.mark.usefixtures("own")
def test_a_model_of_the_users_own() -> None:
    assert build("module", TINY, factory="own_models:linear")(torch.zeros(2, *TINY)).shape == (2, 10)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (
            "no_such_package.models:linear",
            r"'no_such_package.models' cannot be imported: ModuleNotFoundError: .*'no_such_package'$",
        ),
        (
            "own_import:linear",
            r"cannot be imported: ModuleNotFoundError: .*a_package_that_is_not_there.* \(.*own_import.py:1\)$",
        ),
        ("own_syntax:linear", r"cannot be imported: SyntaxError: .* \(.*own_syntax.py:3\)$"),
        ("own_latin:linear", r"cannot be imported: SyntaxError: .*utf-8"),
        ("own_null:linear", r"cannot be imported: SyntaxError: .*null bytes"),
        ("own_exit:linear", r"cannot be imported: SystemExit: 0 \(.*own_exit.py:2\)$"),
        ("own_base:linear", r"cannot be imported: Own: no message \(.*own_base.py:2\)$"),
        ("own_deep:linear", r"cannot be imported: RecursionError: .* \(.*own_deep.py:1\)$"),
        ("own_getter:linear", r"has no function 'linear': ValueError: linear \(.*own_getter.py:1\)$"),
        ("own_models:quadratic", "has no function 'quadratic'$"),
        ("own_models:number", "has no function 'number'; 'number' is of the type int$"),
        ("own_models:nothing", "gave a NoneType, not a torch.nn.Module"),
        ("own_models:failing", r"'own_models:failing' failed: TypeError: .* \(.*own_models.py:9\)$"),
        ("own_models:ending", r"'own_models:ending' failed: SystemExit: 0 \(.*own_models.py:11\)$"),
    ],
)
def test_factories_that_do_not_work(factory: str, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        build("module", TINY, factory=factory)
    assert caught.value.key == "model.factory"
