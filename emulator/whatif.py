"""What-if: a finished run in a changed world, as a run of its own. How such a run is set up stands here alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator import checkpoint, yamlfile
from emulator.errors import InputError
from emulator.kept import KeptModels
from emulator.priced import PRICED, applied
from emulator.recorded import load_to_replay
from emulator.run_folder import SCENARIO, check_inputs, finished, measured
from emulator.scenario.load import Loaded, alone, check, fingerprint, parse_changes, with_changes
from emulator.yamlfile import Document


@dataclass(frozen=True, eq=False)
class ChangedRun:
    """A finished run in a changed world: the ``source`` that it starts from, and its scenario."""

    source: Path
    loaded: Loaded

    @property
    def folder(self) -> Path:
        """Its run folder, unless another is given."""
        return self.source / f"whatif-{fingerprint(self.loaded.scenario)}"

    def known(self) -> dict[str, bytes]:
        """The small results of the finished run, as its folder holds them: what they answer is not trained again."""
        return checkpoint.read_memory(self.source)

    def kept(self) -> KeptModels:
        """The models that the finished run has kept: what is trained begins from them."""
        return KeptModels(self.source)


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: its folder, its scenario, and whether it is one with training, as the changed ones then are."""

    folder: Path
    document: Document
    training: bool

    def changed(self, changes: Sequence[tuple[str, Document]]) -> ChangedRun:
        """The run with changes by dotted key. It keeps no models, unless they say so: most of them would have to be trained.

        Raises `ScenarioError` with everything that is wrong with its scenario.
        """
        forgets = ("output.keep_models", yamlfile.from_data(None, "what-if"))
        document = with_changes(self.document, (forgets, *changes, *alone("what-if")))
        return ChangedRun(self.folder, check(document, self.training))

    def what_if(self, changes: Sequence[str]) -> ChangedRun:
        """As `changed`, with changes as ``hfl whatif --set`` takes them (``key.path=value``)."""
        return self.changed([change for text in changes for change in parse_changes(text)])


def open_run(folder: Path, priced: bool = True) -> FinishedRun:
    """Reads a finished run, with the price list that was applied to it, unless ``priced`` is false.

    Raises `InputError` where the folder holds none, or what it was made with has changed.

    Plug-ins that its manifest names are imported, where they are as they were (`emulator.recorded`).
    """
    training = bool(finished(folder)["training"])
    if measured(folder):
        raise InputError(
            f"the run in '{folder}' was measured on the testbed; what would be in another world an emulation says: "
            "run its scenario with 'hfl run'"
        )
    check_inputs(folder)
    load_to_replay(folder)
    document = yamlfile.load(folder / SCENARIO)
    if priced and (said := applied(folder)) is not None:
        document = with_changes(document, [("prices", yamlfile.from_data(said["prices"], str(folder / PRICED)))])
    return FinishedRun(folder, document, training)
