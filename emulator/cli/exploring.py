"""The command for looking at other worlds by hand: explore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from emulator.cli.app import MemoOption, NoMemoOption, PluginOption, app, import_plugins, out


@app.command()
def explore(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs, or folders that hold some.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page. (default: a free one)")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address of the page.")] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A certificate of these runs, shown beside the controls. (default: one in or beside their folders)",
            show_default=False,
        ),
    ] = None,
    memo: MemoOption = None,
    no_memo: NoMemoOption = False,
    plugin: PluginOption = None,
) -> None:
    """Open a local page on which finished runs are replayed in other worlds: bandwidths, devices, overhead, traces.

    The page is on this machine alone. Ctrl-C ends it.
    """
    import_plugins(plugin)
    from emulator.explore.explorer import Explorer
    from emulator.learning.memo import default_path

    explorer = Explorer(folders, None if no_memo else memo or default_path(), certificate)
    try:
        from emulator.explore.page import Page
        from emulator.explore.server import PageServer

        server = PageServer(lambda document: Page(explorer, document), port)
        out.print(f"{escape(server.url)}  (Ctrl-C ends it)")
        if not no_browser:
            import webbrowser

            webbrowser.open(server.url)
        server.run()
    except KeyboardInterrupt:
        out.print("the page is closed")
    finally:
        explorer.close()
