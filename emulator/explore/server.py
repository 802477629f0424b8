"""The server of the page: on this machine alone, and for its own page alone.

A page elsewhere, open in the same browser, can send requests here. It is kept out by its name (``Host``: a name of its own that
leads to this machine), by its origin (``Origin``, and ``Sec-Fetch-Site`` where browsers send no origin), and by what every
response says about itself: not to be framed, not to be embedded, and nothing runs or loads that is not from here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.resources import Resources
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.static_handler import StaticHandler
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import ErrorHandler, OutputTransform

from emulator.errors import InputError

ADDRESS, ADDRESS_6 = "127.0.0.1", "::1"
SERVED = re.compile(
    r"/|/ws|/favicon\.ico|/static/js/[\w.-]+"
)  # what the page needs; Bokeh's other addresses are not served
SCRIPT = re.compile(rb'<script(?: type="text/javascript")?>(.*?)</script>', re.DOTALL)
# Bokeh writes its styles into the page. Its scripts need no eval as long as nothing here is made of CustomJS.
POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Sealed(OutputTransform):
    """Gives every response, refusals and errors too, the headers that keep other pages out. Only the page's own scripts run."""

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """The response with its headers."""
        inline = SCRIPT.findall(chunk) if headers.get("Content-Type", "").startswith("text/html") else []
        hashes = "".join(f" 'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in inline)
        for name in [name for name in headers if name.startswith("Access-Control-")]:
            del headers[name]
        headers["Content-Security-Policy"] = POLICY.format(scripts=hashes)
        headers.update(HEADERS)
        return status_code, headers, chunk


class _Refusal(ErrorHandler):
    """An error in a line of text."""

    def write_error(self, status_code: int, **_: Any) -> None:
        """Says what is served."""
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish(
            f"{status_code}: this server has one page, and only for itself: {self.application.settings['page']}\n"
        )


class _Loopback(BokehTornado):
    """Refuses requests that name another host, and those of other pages."""

    def __init__(self, applications: dict[str, Application], hosts: list[str]) -> None:
        super().__init__(applications, extra_websocket_origins=hosts, transforms=[_Sealed], page=f"http://{hosts[0]}/")
        self._hosts = frozenset(hosts)
        self._origins = frozenset(f"http://{host}" for host in hosts)

    def resources(self, absolute_url: str | bool | None = None) -> Resources:
        """Bokeh's scripts: from here, whatever the environment says about other pages."""
        return Resources(mode="server", root_url="/", path_versioner=StaticHandler.append_version)

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """The handler of a request."""
        if not self._invited(request):
            return self.get_handler_delegate(request, _Refusal, {"status_code": 403})
        if not SERVED.fullmatch(request.path):
            return self.get_handler_delegate(request, _Refusal, {"status_code": 404})
        return super().find_handler(request, **kwargs)

    def _invited(self, request: HTTPServerRequest) -> bool:
        """Whether a request names this host, and comes from the page itself, from a person, or from a link to the page."""
        headers = request.headers
        if headers.get("Host", "").lower() not in self._hosts:
            return False
        if not self._origins.issuperset(headers.get_list("Origin")):
            return False
        opened = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
        return opened or headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")


def _listener(port: int, address: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _listeners(port: int) -> list[socket.socket]:
    """On the loopback addresses: IPv4, and with the same port IPv6 where the machine has it."""
    found: list[socket.socket] = []
    try:
        found.append(_listener(port, ADDRESS))
        found.append(_listener(found[0].getsockname()[1], ADDRESS_6))
    except OSError as error:
        if not found or (port and error.errno == errno.EADDRINUSE):
            for listener in found:
                listener.close()
            raise InputError(f"port {port} cannot be used: {error.strerror or error}; choose another --port") from None
    return found


class PageServer:
    """Serves a page on the loopback interface. ``make`` fills a document for each visitor."""

    def __init__(self, make: Callable[[Document], Any], port: int = 0) -> None:
        """``port`` 0 takes a free one. Raises `InputError` where the port is taken."""
        listeners = _listeners(port)
        self.port = int(listeners[0].getsockname()[1])
        logging.getLogger("tornado.access").setLevel(
            logging.ERROR
        )  # requests that are refused are nobody's business here
        asyncio.set_event_loop(asyncio.new_event_loop())
        names = [ADDRESS, "localhost", *[f"[{ADDRESS_6}]"] * (len(listeners) > 1)]
        hosts = [f"{name}:{self.port}" for name in names] + names * (self.port == 80)  # browsers leave 80 out
        application = _Loopback({"/": Application(FunctionHandler(make))}, hosts)
        http = HTTPServer(application)
        http.add_sockets(listeners)
        self._loop = IOLoop.current()
        self._server = BaseServer(self._loop, application, http)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.port}/"

    def run(self) -> None:
        """Serves until an interruption (``KeyboardInterrupt``), which is raised again."""
        self._server.start()
        try:
            self._loop.start()
        finally:
            self._server.unlisten()
            self._server.stop()
            self._loop.close()
