"""The page: controls on the left; curves, totals and the equivalent command on the right."""

from __future__ import annotations

import html
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models.css import InlineStyleSheet
from bokeh.models.ui import UIElement
from bokeh.models.widgets import Button, CategoricalSlider, Div, Select
from jinja2 import Template

from emulator.errors import HflError
from emulator.explore.charts import Charts, totals
from emulator.explore.controls import Control, changes_of, useless
from emulator.explore.explorer import Answer, Explorer, SupersededError, Training
from emulator.explore.fleet_chart import FleetChart, FleetView
from emulator.explore.sureness import panel
from emulator.replay import Source, describe_missing
from emulator.whatif import ChangedRun

DEBOUNCE_MS = 150
SCROLLING = {"overflow-y": "auto", "overflow-x": "hidden", "max-height": "calc(100vh - 80px)", "padding-left": "8px"}
STYLE = """
:host { font-family: system-ui, sans-serif; color: #222; }
h1 { font-size: 20px; margin: 0 0 2px; } h2 { font-size: 14px; margin: 10px 0 0; color: #0b4f7d; }
p { margin: 2px 0; } .quiet { color: #666; }
table { border-collapse: collapse; font-size: 14px; } th { text-align: left; color: #555; font-weight: 600; }
th, td { padding: 3px 18px 3px 0; border-bottom: 1px solid #e2e2e2; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.box { padding: 8px 12px; border-radius: 4px; font-size: 14px; white-space: pre-wrap; }
.ok { background: #eef5ee; } .busy { background: #f1f1f1; color: #555; }
.ask { background: #fff3d6; } .bad { background: #fde4e1; }
.beside { display: flex; flex-wrap: wrap; column-gap: 40px; }
i { font-style: normal; } .mark { margin-right: 18px; }
pre { background: #f4f4f4; padding: 8px 12px; border-radius: 4px; margin: 0; font-size: 13px; white-space: pre-wrap; }
"""
# A script of the page itself: the browser is told to run no text as code, as a callback of Bokeh's would be.
COPYING = Template("""{% extends base %}{% block postamble %}<script>
document.addEventListener("click", (event) => {
  const model = (name) => Bokeh.documents[0].get_model_by_name(name);
  if (event.composedPath().includes(Bokeh.index.find_one(model("copy")).el)) {
    navigator.clipboard.writeText(model("command").tags[0]);
  }
});
</script>{% endblock %}""")


class Page:
    """The page of one visitor."""

    def __init__(self, explorer: Explorer, document: Document) -> None:
        self._explorer = explorer
        self._document = document
        self._version = 0  # counts changes; a replay of an earlier one is given up
        self._timer: Any = None
        self._training: Training | None = None
        self._shown: list[Answer | None] = [None] * len(explorer.sources)
        self._sheet = InlineStyleSheet(css=STYLE)
        self._widgets = {control.name: self._widget(control) for control in explorer.controls}
        self._status = self._div("", "status")
        self._progress = self._div("", "progress")
        self._table = self._div("", "totals")
        self._command = self._div("", "command")
        self._train = Button(
            label="Train what is missing", button_type="warning", visible=False, width=200, name="train"
        )
        self._stop = Button(label="Stop the training", visible=False, width=200, name="stop")
        self._reset = Button(label="As it was run", width=140, name="reset")
        self._copy = Button(label="Copy", width=80, name="copy", align="center")
        self._charts = Charts(explorer.labels, all(run.training for run in explorer.runs), explorer.measure)
        self._fleet, self._fleet_legend = FleetChart(), self._div("", "fleet-legend")
        labels: list[Any] = list(explorer.labels)
        self._whose = Select(options=labels, value=labels[0], width=270, name="whose", visible=len(labels) > 1)
        self._whose.on_change("value", lambda attr, old, new: self._ask_fleet())
        self._sure = self._div("", "sure")
        self._by = self._measures()
        self._train.on_click(self._begin_training)
        self._stop.on_click(self._stop_training)
        self._reset.on_click(self._set_back)
        document.template = COPYING
        document.title = f"hfl explore: {', '.join(explorer.labels)}"
        document.add_root(self._layout())
        document.on_session_destroyed(lambda _: self._leave())
        self._say("ok", "Move a slider or choose something: the run is replayed at once.")
        self._enable()
        self._draw()
        self._ask_fleet()

    # What is there.

    def _div(self, text: str, name: str) -> Div:
        return Div(text=text, name=name, stylesheets=[self._sheet], sizing_mode="stretch_width")

    def _widget(self, control: Control) -> CategoricalSlider | Select:
        labels: list[Any] = list(control.options)
        widget: CategoricalSlider | Select
        if control.kind == "slider":
            widget = CategoricalSlider(
                categories=labels, value=control.start, title=control.title, name=control.name, width=270
            )
        else:
            widget = Select(options=labels, value=control.start, title=control.title, name=control.name, width=270)
        widget.on_change("value", self._changed)
        return widget

    def _measures(self) -> Select:
        """By what the certificate compares, and the panel on it."""
        certificate = self._explorer.certificate
        if certificate is None:
            return Select(visible=False, name="sure-measure")
        titles = {each.title: each for each in certificate.measures}
        names: list[Any] = list(titles)
        chosen = Select(options=names, value=next(iter(titles)), width=270, name="sure-measure")
        chosen.visible = len(titles) > 1
        self._sure.text = panel(certificate, titles[str(chosen.value)])

        def show(attribute: str, old: Any, new: str) -> None:
            self._sure.text = panel(certificate, titles[new])

        chosen.on_change("value", show)
        return chosen

    def _sureness(self) -> list[UIElement]:
        """What stands beside the controls where there is a certificate."""
        return [] if self._explorer.certificate is None else [self._div("<h2>How sure?</h2>", ""), self._by, self._sure]

    def _layout(self) -> UIElement:
        names = ", ".join(
            f"{label} ({run.folder})" for label, run in zip(self._explorer.labels, self._explorer.runs, strict=True)
        )
        note = ""
        if len(self._explorer.sources) > 1:
            note = "<p class='quiet'>The controls start as in the first run; what is not moved stays in each run as it was.</p>"
        head = self._div(
            f"<h1>What if the world had been another?</h1><p class='quiet'>{html.escape(names)}</p>{note}", "head"
        )
        left: list[UIElement] = []
        section = ""
        for control in self._explorer.controls:
            if control.section != section:
                section = control.section
                left.append(Div(text=f"<h2>{html.escape(section)}</h2>", stylesheets=[self._sheet], width=290))
            left.append(self._widgets[control.name])
        controls = column(self._reset, *left, width=320, styles=SCROLLING)
        title = Div(text="<h2>The same as a command</h2>", stylesheets=[self._sheet], align="center")
        right = column(
            self._status, row(self._train, self._stop, self._progress, sizing_mode="stretch_width"),
            row(*self._charts.plots, sizing_mode="stretch_width"), self._table, *self._sureness(),
            row(title, self._copy), self._command,
            self._div("<h2>Fleet</h2>", "fleet"), self._whose, self._fleet_legend, self._fleet.plot,
            sizing_mode="stretch_width", styles={"padding-left": "12px"},
        )  # fmt: skip
        return column(head, row(controls, right, sizing_mode="stretch_width"), sizing_mode="stretch_width")

    # What visitors do.

    def _state(self) -> dict[str, str]:
        return {name: str(widget.value) for name, widget in self._widgets.items()}

    def _changes(self) -> list[str]:
        return changes_of(self._explorer.controls, self._state())

    def _changed(self, attribute: str, old: Any, new: Any) -> None:
        """Something was moved: replays when nothing has moved for a moment."""
        self._version += 1
        self._enable()
        if self._timer is not None:
            self._document.remove_timeout_callback(self._timer)
        self._timer = self._document.add_timeout_callback(self._replay, DEBOUNCE_MS)

    def _enable(self) -> None:
        """Shows the controls that change something as the others stand."""
        idle = useless(self._explorer.controls, self._state())
        for name, widget in self._widgets.items():
            if widget.visible == (name in idle):
                widget.visible = name not in idle

    def _set_back(self) -> None:
        for control in self._explorer.controls:
            if self._widgets[control.name].value != control.start:
                self._widgets[control.name].value = control.start

    def _replay(self) -> None:
        self._timer = None
        changes, version = self._changes(), self._version
        if not changes:
            self._shown = [None] * len(self._explorer.sources)
            self._train.visible = False
            self._say("ok", "The world as it was.")
            self._draw()
            self._ask_fleet()
            return
        self._say("busy", "Replaying …")
        asked = self._explorer.ask(changes, lambda: self._version == version)
        asked.add_done_callback(
            lambda done: self._document.add_next_tick_callback(partial(self._answered, version, done))
        )

    def _answered(self, version: int, done: Future[list[Answer]]) -> None:
        """In the page's own thread: shows what came of a replay, unless something else is wanted by now."""
        if version != self._version:
            return
        try:
            answers = done.result()
        except (SupersededError, CancelledError):
            return
        labels, several = self._explorer.labels, len(answers) > 1
        errors = [
            f"{label}: {a.error}" if several else a.error for label, a in zip(labels, answers, strict=True) if a.error
        ]
        needy = [
            f"{f'{label}: ' if several else ''}{describe_missing(a.replay)}."
            for label, a in zip(labels, answers, strict=True)
            if a.replay is not None and not a.replay.known
        ]
        self._shown = [a if a.replay is not None and a.replay.known else None for a in answers]
        self._train.visible = bool(needy) and self._training is None
        if errors:
            self._say("bad", "\n".join(errors))
        elif needy:
            which = "\n".join(needy)
            self._say(
                "ask", f"This world needs training.\n{which}\nIt may take as long as the run did. Shall it be trained?"
            )
        else:
            took, count = sum(a.took_s for a in answers), sum(a.replay.asked for a in answers if a.replay is not None)
            reused = f"all {count:,} trainings reused" if self._explorer.runs[0].training else "a run without training"
            self._say("ok", f"Replayed in {took:.2f} s; {reused}.")
        self._draw()
        self._ask_fleet()

    def _ask_fleet(self) -> None:
        """Draws the fleet once nothing else is to be worked out: curves come first."""
        version, whose = self._version, str(self._whose.value)

        def wanted() -> bool:
            return (self._version, self._whose.value) == (version, whose)

        def show(done: Future[FleetView]) -> None:
            if not wanted():
                return
            try:
                view = done.result()
            except (SupersededError, CancelledError):
                return
            except HflError:  # the status says what is wrong with this world
                self._fleet_legend.text = (
                    "<p class='quiet'>The fleet of this world cannot be shown; this is the last one.</p>"
                )
                return
            self._fleet.show(view)
            self._fleet_legend.text = view.legend

        asked = self._explorer.fleet(self._explorer.labels.index(whose), self._changes(), wanted)
        asked.add_done_callback(lambda done: self._document.add_next_tick_callback(partial(show, done)))

    # Training.

    def _begin_training(self) -> None:
        changes, worlds = self._changes(), list[tuple[Source, ChangedRun, str]]()
        for source, label, shown in zip(self._explorer.sources, self._explorer.labels, self._shown, strict=True):
            if shown is None:
                worlds.append((source, source.what_if(changes), label))
        self._train.visible, self._stop.visible = False, True
        self._say_progress("Training …")
        self._training = Training(self._explorer, worlds, self._tell, self._trained)

    def _tell(self, text: str) -> None:
        self._document.add_next_tick_callback(partial(self._say_progress, f"Training: {text} …"))

    def _trained(self, error: str) -> None:
        self._document.add_next_tick_callback(partial(self._end_training, error))

    def _end_training(self, error: str) -> None:
        self._training = None
        self._stop.visible = False
        self._progress.text = ""
        if error:
            self._say("bad", f"Training: {error}")
            self._train.visible = None in self._shown and bool(self._changes())
        else:
            self._version += 1
            self._replay()

    def _stop_training(self) -> None:
        if self._training is not None:
            self._training.stop()

    def _leave(self) -> None:
        """The visitor is gone: nobody waits for anything any more."""
        self._version += 1
        if self._training is not None:
            self._training.stop()

    # What is shown.

    def _say(self, kind: str, text: str) -> None:
        self._status.text = f"<div class='box {kind}'>{html.escape(text)}</div>"

    def _say_progress(self, text: str) -> None:
        self._progress.text = f"<p>{html.escape(text)}</p>"

    def _draw(self) -> None:
        """Curves, totals and command, as they stand."""
        befores: list[list[Any]] = [run.metrics.to_dict("records") for run in self._explorer.runs]
        afters = [None if a is None or a.replay is None else a.replay.metrics for a in self._shown]
        self._charts.show(befores, afters)
        self._table.text = totals(self._explorer.labels, befores, afters, self._explorer.measure)
        changes = self._changes()
        text = self._explorer.command(changes) if changes else ""
        self._command.tags = [text]
        self._command.text = f"<pre>{html.escape(text) or 'nothing is changed'}</pre>"
