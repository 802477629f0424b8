"""Kinds of hops: which pair of neighbours a transfer connects. A "server" is whoever stands right above the client."""

SERVER_CLIENT = "server-client"
CLIENT_SERVER = "client-server"
CLIENT_CLIENT = "client-client"
CLOUD_EDGE = "cloud-edge"
EDGE_CLOUD = "edge-cloud"
HOPS = (
    SERVER_CLIENT,
    CLIENT_SERVER,
    CLIENT_CLIENT,
    CLOUD_EDGE,
    EDGE_CLOUD,
)  # a topology may have more, between its tiers


def bytes_column(hop: str) -> str:
    """The column of ``metrics.csv`` with the bytes of a kind of hop."""
    return f"bytes_{hop.replace('-', '_')}"
