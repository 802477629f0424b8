"""All that a plug-in needs, in one place: ``from emulator.extend import formations, ClientView, Params``.

A plug-in is a module or a file that registers functions (or classes) in the registries below; ``--plugin`` imports it. Each
registers under a name, with a parameter model and with the facts that its slot asks for::

    from emulator.extend import ClientView, EqualSizes, FormationFacts, formations

    @formations.register("by-number", EqualSizes, FormationFacts(smallest=lambda params: params.size))
    def by_number(clients: ClientView, rng, params):
        \"""Clients in the order of their numbers.\"""
        ...

``docs/extending.md`` and ``docs/extending-slots.md`` have a complete example of each slot.

Names from here stay; where they stand in the packages behind it may change. Nothing here imports torch, matplotlib or pandas,
and a plug-in imports them within its functions: validating a scenario imports it. `MeasuredModels` and `Samples` hold tensors:
name them under ``TYPE_CHECKING``, because importing them imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from analysis.figures import SeriesFigure, save_all, selected, series_of
from analysis.plots.style import curve, legend_below, look, panels, settle, style, title_above
from analysis.printed import Printed
from analysis.runs import Run
from analysis.series import Given, Series, as_series
from analysis.studies import StudyResults
from analysis.texttable import TextTable
from devices.profile import Curve, DeviceProfile, find_profile
from emulator.conformance import Facts
from emulator.contracts.combining import (
    Combination,
    CombinationFacts,
    Received,
    ServerOptimiser,
    ServerOptimiserFacts,
    combinations,
    server_optimisers,
)
from emulator.contracts.encodings import Coder, EncodingFacts, Flops, Layout, Packer, Reducer, encodings
from emulator.contracts.files import (
    TraceFormat,
    TraceFormatFacts,
    TraceGenerator,
    TraceGeneratorFacts,
    figures,
    printed_tables,
    trace_formats,
    trace_generators,
)
from emulator.contracts.grouping import (
    Aggregation,
    Distance,
    DrawingParams,
    Formation,
    FormationFacts,
    Sampling,
    SamplingFacts,
    Schedule,
    ScheduleFacts,
    aggregations,
    distances,
    formations,
    samplings,
    schedules,
)
from emulator.contracts.learning import (
    DataSet,
    DataSetFacts,
    LocalOptimiser,
    LocalParams,
    LocalRule,
    MeasurementFacts,
    Model,
    Optimiser,
    Partition,
    PartitionFacts,
    RateSchedule,
    Rule,
    data_sets,
    local_rules,
    measurements,
    models,
    optimisers,
    partitions,
    rate_schedules,
)
from emulator.contracts.methods import (
    AttackFacts,
    Bipartition,
    Estimator,
    EstimatorFacts,
    GroupResult,
    Halves,
    MethodFacts,
    MethodParams,
    Patience,
    Reading,
    SplitTime,
    Training,
    TrainingFacts,
    Waiting,
    attacks,
    bipartitions,
    estimators,
    methods,
    split_times,
    trainings,
    waitings,
)
from emulator.contracts.selection import Call, Report, Selection, SelectionFacts, selections
from emulator.contracts.staleness import Staleness, stalenesses
from emulator.contracts.tasks import Task, TaskFacts, TaskParams, TaskRule, tasks
from emulator.contracts.uncertainty import DistributionFacts, DistributionParams, distributions
from emulator.contracts.world import (
    FaultEffect,
    FleetSize,
    Ground,
    GroupOperation,
    GroupOperationFacts,
    Meeting,
    OperationCost,
    RngOf,
    Stays,
    Transport,
    faults,
    group_operations,
    movements,
    transports,
)
from emulator.errors import HflError, InputError
from emulator.grouping.aggregation import SampledGroups
from emulator.grouping.sampling.rules import SamplingParams
from emulator.grouping.sizes import EqualSizes, LeastSize
from emulator.grouping.view import ClientView, Counts, Floats, Groups, GroupView
from emulator.learning.data.arrays import ArraySet, Outline
from emulator.learning.data.mapped import sample_array
from emulator.learning.partitions.parts import ClusteredParts
from emulator.learning.recipes import Handle, LocalTraining, Trained, VectorFunction
from emulator.ledger import Tag
from emulator.measures import Measure
from emulator.methods.attacks import Attack
from emulator.methods.cluster_models import Clusters
from emulator.methods.combining import ServerOptimisers, combine
from emulator.methods.estimators.asking import Enquiry, ask_everybody, learn
from emulator.methods.estimators.pretraining import PretrainingParams
from emulator.methods.forming import charge_formation, enquiry, form, somebody, until_somebody
from emulator.methods.memory import RuleMemory
from emulator.methods.selecting import SELECTIONS, Selecting
from emulator.methods.selection import Selector
from emulator.methods.session import NOBODY_LEFT, Metrics, Models, ReceivedData, Session
from emulator.methods.slots import GroupSlots, OneServer, chosen_by_default
from emulator.methods.splitting import Watch
from emulator.methods.training import Group, GroupRound, Waits, averaged, combined, train_members
from emulator.methods.waiting import gather
from emulator.registry import AnyChosen, NoParams, Params, Registry, Scale
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.study.schema import FigureParams
from emulator.tables import Table
from emulator.units import Amount, BitsPerSecond, ClientSeconds, PositiveBytes, PositiveSeconds, Seconds
from emulator.world.faults import OfClients, OfEdges, SomeClients, When
from emulator.world.fleet import CLOUD, client_name, edge_name
from emulator.world.meetings import operate, recover
from emulator.world.operations import CurveParams
from emulator.world.overtime import Spells
from emulator.world.world import Steps, StepsTo, World
from traces.content import DeviceMix, LatencyMatrix, Trace
from traces.source import Head, lines, number, read_text, wrong
from traces.step import StepFunction

if TYPE_CHECKING:
    from emulator.learning.measured_models import MeasuredModels, Samples

__all__ = [  # noqa: RUF022 (by slot)
    # Every plug-in: parameters and their fields, what a scenario chose, what a fleet is like, random numbers, errors.
    "Params", "NoParams", "Field", "model_validator", "field_validator", "PydanticCustomError", "Scale", "AnyChosen",
    "Registry", "Facts", "chosen_by_default", "stream", "InputError", "HflError",
    # Fields with units, and whole numbers from 1.
    "Seconds", "PositiveSeconds", "BitsPerSecond", "PositiveBytes", "ClientSeconds", "Count",
    # Fields that choose from a slot.
    "DataSet", "Partition", "Model", "LocalRule", "Estimator", "Distance", "Formation", "Sampling", "Aggregation",
    "Schedule", "Training", "GroupOperation", "Waiting", "SplitTime", "Bipartition", "TraceFormat", "TraceGenerator",
    "LocalOptimiser", "RateSchedule", "Combination", "ServerOptimiser", "Selection", "Staleness",
    # Methods.
    "methods", "MethodFacts", "MethodParams", "OneServer", "GroupSlots", "Session", "Steps", "StepsTo", "World", "Handle",
    "Models", "Metrics", "Clusters", "Tag", "Table", "CLOUD", "client_name", "edge_name", "NOBODY_LEFT", "RuleMemory",
    "averaged", "ask_everybody", "learn", "enquiry", "form", "charge_formation", "until_somebody", "somebody",
    "Trained", "LocalTraining", "ReceivedData", "VectorFunction",
    # Attacks, which have tables too.
    "attacks", "AttackFacts", "Attack",
    # In-group training.
    "trainings", "TrainingFacts", "Group", "GroupRound", "Waits", "GroupResult", "train_members", "operate", "recover",
    # Combinations and server optimisers.
    "combinations", "CombinationFacts", "Received", "combine", "combined", "server_optimisers", "ServerOptimiserFacts",
    "ServerOptimisers",
    # Waiting.
    "waitings", "Patience", "gather",
    # Client selection.
    "selections", "SelectionFacts", "Selector", "Selecting", "Call", "Report", "SELECTIONS",
    # Staleness functions of asynchronous methods.
    "stalenesses",
    # Distributions of what is uncertain about a world.
    "distributions", "DistributionFacts", "DistributionParams", "Amount",
    # Split times and bipartitions.
    "split_times", "bipartitions", "Watch", "Reading", "Halves",
    # Estimators.
    "estimators", "EstimatorFacts", "Enquiry", "PretrainingParams",
    # Formations, distances, samplings, aggregations, schedules.
    "formations", "distances", "samplings", "aggregations", "schedules", "FormationFacts", "SamplingFacts", "ScheduleFacts",
    "ClientView", "GroupView", "Groups", "Counts", "Floats", "EqualSizes", "LeastSize", "DrawingParams", "SamplingParams",
    "SampledGroups",
    # Data sets and partitions.
    "data_sets", "partitions", "DataSetFacts", "PartitionFacts", "ArraySet", "Outline", "sample_array", "ClusteredParts",
    # Tasks.
    "tasks", "Task", "TaskFacts", "TaskParams", "TaskRule", "Measure",
    # Models, local updates, optimisers and learning-rate schedules.
    "models", "local_rules", "LocalParams", "Rule", "optimisers", "Optimiser", "rate_schedules",
    # Measurements of models.
    "measurements", "MeasurementFacts", "MeasuredModels", "Samples",
    # Group operations, and the devices that do them.
    "group_operations", "GroupOperationFacts", "Meeting", "OperationCost", "CurveParams", "Curve", "DeviceProfile",
    "find_profile",
    # Transports.
    "transports", "Transport",
    # Encodings.
    "encodings", "EncodingFacts", "Reducer", "Coder", "Packer", "Layout", "Flops",
    # Faults.
    "faults", "FleetSize", "FaultEffect", "RngOf", "Spells", "When", "OfClients", "OfEdges",
    # Movements.
    "movements", "Ground", "Stays", "SomeClients",
    # Trace formats and generators.
    "trace_formats", "trace_generators", "TraceFormatFacts", "TraceGeneratorFacts", "Trace", "DeviceMix", "LatencyMatrix",
    "StepFunction", "Head", "lines", "number", "read_text", "wrong",
    # Figures.
    "figures", "FigureParams", "SeriesFigure", "StudyResults", "Series", "Run", "series_of", "selected", "save_all",
    "style", "panels", "look", "curve", "legend_below", "title_above", "settle",
    # Tables of `hfl table`.
    "printed_tables", "Printed", "TextTable", "Given", "as_series",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in ("MeasuredModels", "Samples"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module("emulator.learning.measured_models"), name)
