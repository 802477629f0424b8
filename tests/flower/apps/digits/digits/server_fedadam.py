"""fedadam, tested by the server."""

from digits.server_fedavg import start
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    start(grid, context, "fedadam")
