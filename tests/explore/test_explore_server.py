"""Who is answered by the server of the page, and what every answer says to browsers."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from emulator.errors import InputError
from emulator.explore.server import PageServer

PATHS = ("/", "/ws", "/static/js/bokeh.min.js", "/favicon.ico", "/autoload.js", "/metadata", "/nowhere")
SOCKET = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": "bokeh, token",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    """A server of an empty page, at work in a thread."""
    made: list[PageServer] = []
    ready = threading.Event()

    def serve() -> None:
        made.append(PageServer(lambda document: None))
        made[0]._loop.add_callback(ready.set)
        made[0].run()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(30)
    yield made[0]
    made[0]._loop.add_callback(made[0]._loop.stop)
    thread.join(30)


def ask(
    server: PageServer, path: str, method: str = "GET", address: str = "127.0.0.1", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """The status, headers and text of an answer. Names of headers are given with ``_`` for ``-``."""
    connection = http.client.HTTPConnection(address, server.port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        body = b"" if response.status == 101 else response.read()
        return response.status, response.headers, body.decode("latin-1")
    finally:
        connection.close()


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as attempt:
        try:
            attempt.bind(("::1", 0))
        except OSError:
            return False
    return True


def test_the_page_is_there_under_every_name_of_this_machine(server: PageServer) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/"
    names = [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("127.0.0.1", "LocalHost")]
    for address, name in [*names, *[("::1", "[::1]")] * has_ipv6()]:
        host = f"{name}:{server.port}"
        assert ask(server, "/", address=address, Host=host)[0] == 200
        own = {"Host": host, "Origin": f"http://{host.lower()}", "Sec_Fetch_Site": "same-origin"}
        assert ask(server, "/static/js/bokeh.min.js", address=address, **own)[0] == 200
        assert ask(server, "/ws", address=address, **own, **SOCKET)[0] == 101


@pytest.mark.parametrize("path", PATHS)
def test_other_hosts_and_origins_are_refused_everywhere(server: PageServer, path: str) -> None:
    port = server.port
    more = SOCKET if path == "/ws" else {}
    hosts = ["evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"127.0.0.1.evil.example:{port}",
             f"localhost.:{port}", f"127.0.0.2:{port}", f"0.0.0.0:{port}", ""]  # fmt: skip
    for host in hosts:
        assert ask(server, path, Host=host, **more)[0] in (400, 403), host
        assert ask(server, path, Host=host, Origin=f"http://{host}", **more)[0] in (400, 403), host
    origins = ["http://evil.example", f"http://evil.example:{port}", f"http://127.0.0.1:{port + 1}", "http://127.0.0.1",
               f"https://127.0.0.1:{port}", f"127.0.0.1:{port}", f"http://127.0.0.1:{port}.evil.example", "null",
               "file://", ""]  # fmt: skip
    for origin in origins:
        assert ask(server, path, Origin=origin, **more)[0] == 403, origin
    for site in ("cross-site", "same-site"):
        assert (
            ask(server, path, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script", **more)[0] == 403
        )
        assert (
            ask(server, path, Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe", **more)[0] == 403
        )


def test_a_link_from_elsewhere_opens_the_page(server: PageServer) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(server, "/", **link)[0] == 200


def test_what_the_page_does_not_need_is_not_served(server: PageServer) -> None:
    query = "?bokeh-autoload-element=x&bokeh-absolute-url=http://evil.example"
    for path in (f"/autoload.js{query}", f"/autoload+js{query}", "/metadata", "/static/", "/static/extensions/x/y",
                 "/static/js/../../server.py", f"http://127.0.0.1:{server.port}/"):  # fmt: skip
        status, _, text = ask(server, path)
        assert (status, text) == (404, f"404: this server has one page, and only for itself: {server.url}\n"), path
        assert ask(server, path, "OPTIONS", Origin="http://evil.example")[0] == 403
    assert ask(server, "/", "POST")[0] == 405


def test_every_answer_keeps_other_pages_out(server: PageServer) -> None:
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    answers = {
        (path, status): headers
        for path in PATHS
        for more in ({}, own, {"Origin": "http://evil.example"}, {"Host": "evil.example"}, SOCKET)
        for method in ("GET", "POST", "OPTIONS")
        for status, headers, _ in [ask(server, path, method, **more)]
    }
    assert {status for _, status in answers} == {101, 200, 400, 403, 404, 405}
    for place, headers in answers.items():
        assert not [name for name in headers if name.lower().startswith("access-control-")], place
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, place
        assert "frame-ancestors 'none'" in policy, place
        assert "unsafe-eval" not in policy, place
        assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0], place
        found = [headers[name] for name in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy")]
        assert found == ["DENY", "nosniff", "no-referrer"], place
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin", place


def test_the_scripts_are_from_here_whatever_the_environment_says(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOKEH_RESOURCES", "cdn")
    text = ask(server, "/")[2]
    assert '<script src="/static/js/bokeh.min.js' in text
    assert "cdn" not in text


def test_a_port_that_is_taken_is_refused(server: PageServer) -> None:
    with pytest.raises(InputError, match=rf"port {server.port} cannot be used: .*; choose another --port"):
        PageServer(lambda document: None, server.port)


@pytest.mark.skipif(not has_ipv6(), reason="needs the loopback address of IPv6")
def test_a_port_that_somebody_else_has_on_ipv6_is_refused() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot be used"):
            PageServer(lambda document: None, taken.getsockname()[1])


def test_other_machines_do_not_reach_it(server: PageServer) -> None:
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)} - {"127.0.0.1", "::1"}
    for address in others:
        with socket.socket(socket.AF_INET6 if ":" in str(address) else socket.AF_INET) as attempt:
            attempt.settimeout(2)
            assert attempt.connect_ex((str(address), server.port)) != 0
