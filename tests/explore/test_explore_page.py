"""The page in a real browser: it loads, a slider moves, and the curve becomes what ``hfl whatif`` says."""

from __future__ import annotations

import http.server
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificate_samples import BYTES, TIME, linear_a, linear_b, write_certificate
from patience import PATIENCE_S
from scenario.command import hfl

from analysis.runs import load_run
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.scenario import Loaded

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--window-size=1400,950",
)  # fmt: skip


class Visitor:
    """Somebody with a browser on the page."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        driver.get(url)
        self.until(lambda: driver.execute_script("return typeof Bokeh !== 'undefined' && Bokeh.documents.length == 1"))
        self.until(lambda: "slider" in self.status())

    def model(self, name: str, what: str) -> Any:
        """A property of the part of the page that has this name."""
        return self.driver.execute_script(
            "return Bokeh.documents[0].get_model_by_name(arguments[0])[arguments[1]]", name, what
        )

    def status(self) -> str:
        return str(self.model("status", "text"))

    def curve(self, number: int = 0) -> dict[str, list[float]]:
        """What is drawn of a run in the world that is asked for."""
        script = (
            "const d = Bokeh.documents[0].get_model_by_name(arguments[0]).data; return JSON.parse(JSON.stringify(d))"
        )
        found: dict[str, list[float]] = self.driver.execute_script(script, f"curve-{number}")
        return found

    def inside(self, name: str, selector: str) -> Any:
        """An element within a widget."""
        script = (
            "const model = Bokeh.documents[0].get_model_by_name(arguments[0]);"
            "return Bokeh.index.find_one(model).shadow_el.querySelector(arguments[1])"
        )
        return self.driver.execute_script(script, name, selector)

    def choose(self, name: str, label: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.inside(name, "select")).select_by_visible_text(label)

    def command(self) -> list[str]:
        """The command that the page shows."""
        return shlex.split(str(self.model("command", "tags")[0]))

    def until(self, true: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, self.status()
            time.sleep(0.05)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(flag)
    made = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield made
    made.quit()


def complaints(driver: Any) -> list[str]:
    """What the browser says in its console about what went wrong or was forbidden, since it was last asked."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


@pytest.fixture
def run(request: pytest.FixtureRequest, small: Callable[..., Loaded], tmp_path: Path) -> Path:
    """A finished run; a test may give it a change."""
    changes = ["stop.rounds=4", *getattr(request, "param", ())]
    execute(small(*changes), tmp_path / "run", Memo(None), max_workers=1)
    return tmp_path / "run"


@pytest.fixture
def page(run: Path) -> Iterator[str]:
    """The address of the page of a run, and at last that it ends cleanly."""
    words = [sys.executable, "-m", "emulator", "explore", str(run), "--no-browser", "--no-memo"]
    # Whoever runs the tests in the background ignores Ctrl-C, and so would all that they start.
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line
        yield line.split()[0]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, err) == (0, "the page is closed\n", "")
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def check_as_whatif(visitor: Visitor, folder: Path) -> None:
    """What is drawn is what the command on the page writes."""
    program, *words = visitor.command()
    assert program == "hfl"
    assert hfl(*words, "--out", folder, "--no-memo").code == 0
    metrics, curve = load_run(folder).metrics, visitor.curve()
    assert curve["y"] == list(metrics["accuracy"])
    assert curve["round"] == list(metrics["round"])
    for name, column in (("time", "time_s"), ("bytes", "bytes_total"), ("cost", "cost_s")):
        drawn, written = curve[name], list(metrics[column])
        assert [d * written[-1] for d in drawn] == pytest.approx([w * drawn[-1] for w in written], rel=1e-12)


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_slider_moves_the_curve_to_what_whatif_says(driver: Any, page: str, run: Path, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    visitor = Visitor(driver, page)
    assert "hfl explore: hierfavg" in driver.title
    assert visitor.curve()["y"] == []
    assert not any("http" in entry.get_attribute("src") and "127.0.0.1" not in entry.get_attribute("src")
                   for entry in driver.find_elements("css selector", "script[src], link[src]"))  # fmt: skip
    assert visitor.model("topology.links.access.up", "value") == "8 Mbit/s"
    handle = visitor.inside("topology.links.access.up", ".noUi-handle")
    for _ in range(12):
        handle.send_keys(Keys.ARROW_LEFT)
    moved = visitor.model("topology.links.access.up", "value")
    assert moved == "100 kbit/s"  # twelve steps: 7, 5, 3, 2, 1.5, 1 and again
    command = ["hfl", "whatif", str(run), "--set", f"topology.links.access.up={moved}"]
    visitor.until(lambda: visitor.command() == command and "all 64 trainings reused" in visitor.status())
    check_as_whatif(visitor, tmp_path / "slow")
    before = load_run(run).metrics
    assert load_run(tmp_path / "slow").metrics["time_s"].iloc[-1] > before["time_s"].iloc[-1]
    assert "%" in visitor.model("totals", "text")

    visitor.choose("topology.devices", "laptop")
    visitor.until(lambda: "topology.devices=laptop" in visitor.command() and "reused" in visitor.status())
    check_as_whatif(visitor, tmp_path / "laptops")
    visitor.inside("reset", "button").click()
    visitor.until(lambda: "The world as it was" in visitor.status())
    assert visitor.curve()["y"] == []
    assert visitor.model("topology.devices", "value") == "raspberry-pi-4b"
    assert complaints(driver) == []


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_page_says_how_sure_it_is(driver: Any, run: Path, request: pytest.FixtureRequest) -> None:
    import yaml

    folder = write_certificate(
        run.parent / "certificate",
        {name: {each["column"]: rule for each in (TIME, BYTES)} for name, rule in (("A", linear_a), ("B", linear_b))},
        worlds=40, seeds=(1,), measures=(TIME, BYTES),
    )  # fmt: skip
    about = yaml.safe_load((folder / "certificate.yaml").read_text())
    about["runs"][0]["folder"] = "../run"
    (folder / "certificate.yaml").write_text(yaml.safe_dump(about))
    visitor = Visitor(driver, request.getfixturevalue("page"))
    text = visitor.model("sure", "text")
    assert "A beats B" in text
    assert "in less time" in text
    visitor.choose("sure-measure", "data to 80 %")
    visitor.until(lambda: "with less data" in visitor.model("sure", "text"))
    assert complaints(driver) == []


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("run", [("topology.sharing=dedicated",)], indirect=True)
def test_what_needs_training_is_asked_first_and_errors_are_said(
    driver: Any, page: str, run: Path, tmp_path: Path
) -> None:
    visitor = Visitor(driver, page)
    visitor.choose("topology.availability", "phone-availability")
    visitor.until(lambda: "This world needs training" in visitor.status())
    assert "trainings are missing" in visitor.status()
    assert visitor.curve()["y"] == []
    assert not list(run.glob("whatif-*"))
    assert visitor.model("train", "visible")
    visitor.inside("train", "button").click()
    visitor.until(lambda: "reused" in visitor.status())
    assert len(list(run.glob("whatif-*"))) == 1
    check_as_whatif(visitor, tmp_path / "trained")
    assert not visitor.model("train", "visible")

    visitor.choose("topology.links.access.trace", "lte-like")
    visitor.until(lambda: "traces need &#x27;topology.sharing: max-min&#x27;" in visitor.status())
    assert "Traceback" not in visitor.status()
    assert visitor.curve()["y"] == []
    visitor.choose("topology.links.access.trace", "none")
    visitor.until(lambda: "reused" in visitor.status())
    assert len(visitor.curve()["y"]) > 1
    assert complaints(driver) == []


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_command_is_copied_and_what_is_slipped_in_does_not_run(driver: Any, page: str) -> None:
    origin = page.rstrip("/").replace("127.0.0.1", "localhost")
    driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"origin": origin, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    visitor = Visitor(driver, origin)
    visitor.choose("topology.devices", "laptop")
    visitor.until(lambda: "topology.devices=laptop" in visitor.command() and "reused" in visitor.status())
    visitor.inside("copy", "button").click()
    visitor.until(
        lambda: shlex.split(driver.execute_script("return navigator.clipboard.readText()")) == visitor.command()
    )
    assert complaints(driver) == []
    tests = {
        "handler": "const img = document.createElement('div'); img.innerHTML = \"<img src=x onerror='window.ran = 1'>\";"
                   "document.body.append(img)",
        "script": "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)",
        "eval": "setTimeout('window.ran = 1')",
        "elsewhere": "const s = document.createElement('script'); s.src = 'http://127.0.0.1:9/x.js'; document.body.append(s)",
    }  # fmt: skip
    for name, code in tests.items():
        driver.execute_script(
            "window.refused = []; document.addEventListener('securitypolicyviolation', e => refused.push(e.effectiveDirective));"
            + code
        )
        visitor.until(lambda: driver.execute_script("return refused.some(name => name.startsWith('script-src'))"))
        assert driver.execute_script("return window.ran") is None, name


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_fleet_is_that_of_the_world_that_is_asked_for(driver: Any, page: str) -> None:
    visitor = Visitor(driver, page)
    visitor.until(lambda: "raspberry-pi-4b (8)" in visitor.model("fleet-legend", "text"))
    names = "return Array.from(Bokeh.documents[0].get_model_by_name('fleet-servers').data.name)"
    assert driver.execute_script(names) == ["cloud", "edge-0", "edge-1"]
    assert not visitor.model("whose", "visible")
    visitor.choose("topology.devices", "laptop")
    visitor.until(lambda: "laptop (8)" in visitor.model("fleet-legend", "text"))
    visitor.inside("reset", "button").click()
    visitor.until(lambda: "raspberry-pi-4b (8)" in visitor.model("fleet-legend", "text"))
    assert complaints(driver) == []


ELSEWHERE = """<!doctype html><title>elsewhere</title><body><script>
const here = "PAGE", found = {};
const note = (name, promise) => promise.then((value) => found[name] = value, (error) => found[name] = "refused");
const loads = (tag, path) => new Promise((done, fail) => {
  const part = document.createElement(tag);
  [part.onload, part.onerror] = [() => done("loaded"), fail];
  part.src = here + path;
  document.body.append(part);
});
note("fetch", fetch(here).then((answer) => answer.text()));
note("autoload", fetch(here + "autoload.js?bokeh-autoload-element=x").then((answer) => answer.text()));
note("opaque", fetch(here, {mode: "no-cors"}).then((answer) => answer.type));
note("script", loads("script", "static/js/bokeh.min.js"));
note("autoloaded", loads("script", "autoload.js?bokeh-autoload-element=x"));
note("image", loads("img", "favicon.ico"));
note("socket", new Promise((done, fail) => {
  const socket = new WebSocket(here.replace("http", "ws") + "ws", ["bokeh", "token"]);
  [socket.onopen, socket.onerror] = [() => done("open"), fail];
}));
let framed = false;
loads("iframe", "").then(() => framed = true);
</script>"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_page_elsewhere_gets_nothing(driver: Any, page: str) -> None:
    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(ELSEWHERE.replace("PAGE", page).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        try:
            for name in ("127.0.0.1", "localhost"):  # the same site, and another one
                driver.get(f"http://{name}:{other.server_port}/")
                end = time.monotonic() + PATIENCE_S
                while len(found := driver.execute_script("return found")) < 7 or not driver.execute_script(
                    "return framed"
                ):
                    assert time.monotonic() < end, found
                    time.sleep(0.05)
                assert set(found.values()) == {"refused"}, found
                driver.switch_to.frame(0)
                assert driver.execute_script("return location.protocol") == "chrome-error:"
        finally:
            other.shutdown()
            serving.join(PATIENCE_S)
