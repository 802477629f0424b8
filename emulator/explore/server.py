"""The server of the page: on this machine alone, and for its own page alone."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import ErrorHandler

from emulator.errors import InputError

ADDRESS = "127.0.0.1"


class _Loopback(BokehTornado):
    """Refuses requests that name another host: a page elsewhere may not reach this one through a name of its own."""

    def __init__(self, applications: dict[str, Application], hosts: list[str]) -> None:
        super().__init__(applications, extra_websocket_origins=hosts)
        self._hosts = frozenset(hosts)

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """The handler of a request."""
        if request.host not in self._hosts:
            return self.get_handler_delegate(request, ErrorHandler, {"status_code": 403})
        return super().find_handler(request, **kwargs)


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen(128)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise InputError(f"port {port} cannot be used: {error.strerror or error}; choose another --port") from None
    return listener


class PageServer:
    """Serves a page on the loopback interface. ``make`` fills a document for each visitor."""

    def __init__(self, make: Callable[[Document], Any], port: int = 0) -> None:
        """``port`` 0 takes a free one. Raises `InputError` where the port is taken."""
        listener = _listener(port)
        self.port = int(listener.getsockname()[1])
        logging.getLogger("tornado.access").setLevel(
            logging.ERROR
        )  # requests that are refused are nobody's business here
        asyncio.set_event_loop(asyncio.new_event_loop())
        hosts = [f"{name}:{self.port}" for name in (ADDRESS, "localhost")]
        application = _Loopback({"/": Application(FunctionHandler(make))}, hosts)
        http = HTTPServer(application)
        http.add_sockets([listener])
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
