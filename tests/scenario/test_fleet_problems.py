"""What is wrong with a fleet is said by ``hfl validate``: all of it at once, with file, line and column, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario.command import hfl

SCENARIO = """
name: wrong
data: {set: digits, partition: {kind: dirichlet, alpha: 0.3, samples_per_client: 12}}
model: {kind: mlp, hidden: [8]}
topology: {%s}
method: {preset: fedavg, local: {batch_size: 4}}
stop: {rounds: 1}
"""
FILES = "fleet: clients.csv, servers: servers.csv"
RING = "{shape: ring, bandwidth: 1 Mbit/s}"
OPEN = "time [s],bandwidth [Mbit/s]\n0,5\n10,7\n"
LOST = "it does not start over, so it cannot be played from random instants; say in the file what comes then"

CASES = {
    "files that are both wrong": (
        FILES,
        "name,up\na,5\nb,1 Mbit/s\n",
        "name,latency\nx,-1 ms\n",
        ["clients.csv:2: column \"up\": '5' has no unit", "servers.csv:2: column \"latency\": '-1 ms'"],
    ),
    "rows of servers": (
        FILES,
        "name\na\nb\n",
        "name,device,tier\nx,raspberry-pi-5b,edge\ny,,Edge 1\n",
        [
            "servers.csv:2: column \"device\": unknown device 'raspberry-pi-5b'",
            "servers.csv:3: column \"tier\": 'Edge 1' is no name of a tier",
        ],
    ),
    "traces": (
        FILES,
        "name,trace,availability\na,open.csv,lte-like\nb,nowhere.csv,\n",
        "name,trace\nx,open.csv\n",
        [
            f'clients.csv:2: column "trace": open.csv: {LOST}',
            'clients.csv:2: column "availability": lte-like: the trace has no availability',
            'clients.csv:3: column "trace": nowhere.csv: there is no such file',
        ],
    ),
    "a trace of a server": (
        FILES,
        "name\na\nb\n",
        "name,trace\nx,open.csv\n",
        [f'servers.csv:2: column "trace": open.csv: {LOST}'],
    ),
    "traces on links that do not change": (
        f"{FILES}, sharing: dedicated",
        "name,trace\na,lte-like\nb,\n",
        "name,trace\nx,lte-like\n",
        ["topology.fleet: traces need 'topology.sharing: max-min'", "topology.servers: traces need"],
    ),
    "owners in a partition by labels": (
        FILES,
        "name,owner\na,ann\nb,bob\n",
        "name\nx\n",
        ["goes with 'data.partition: natural'"],
    ),
    "two roots": (FILES, "name,parent\na,x\n", "name,parent\nx,\ny,\n", ["no client is below y"]),
    "a cloud of one's own": (
        FILES,
        "name\na\n",
        "name,parent\ncloud,\nx,cloud\n",
        ["servers.csv:2: the cloud is there"],
    ),
    "cells of any length": (
        FILES,
        f"name,parent,device\na,{'p' * 100_000},{'d' * 2_000}\n",
        "name\nx\n",
        ['column "parent": \'ppp', "has 100,000 characters; at most 1,000 are read", "has 2,000 characters"],
    ),
    "direct links": (
        "edges: 3, clients: 6, links: {direct: [{pairs: [[edge-0, edge-9], [edge-1, edge-1], [client-0, edge-1], "
        f"[edge-2, cloud]], bandwidth: 1 Mbit/s}}, {RING}, {{pairs: [[edge-1, edge-0]], bandwidth: 1 Mbit/s}}]}}",
        "",
        "",
        [
            "direct[0]: there is no server or client 'edge-9'",
            "direct[0]: joins 'edge-1' with itself",
            "direct[0]: joins a client with a server",
            "direct[0]: 'edge-2' and 'cloud' are not of one tier",
            "direct[2]: 'edge-1' and 'edge-0' are joined already",
        ],
    ),
    "direct links of what is not there": (
        f"edges: 1, clients: 6, links: {{direct: [{RING}, {{tier: gatewy, shape: mesh, bandwidth: 1 Mbit/s}}]}}",
        "",
        "",
        ["direct[0]: tier 'edge' has one server", "direct[1]: there are no servers of tier 'gatewy'"],
    ),
    "direct links that say too little": (
        "edges: 2, clients: 6, links: {direct: [{bandwidth: 1 Mbit/s}, {shape: circle, bandwidth: 0 Mbit/s, loss: 1.0, "
        "latency: -1 ms}, {pairs: [[a]], bandwidth: 1 Mbit/s}]}",
        "",
        "",
        [
            "direct[0]: give either 'shape' or 'pairs'",
            "direct[1].shape: expected 'ring'",
            "direct[1].bandwidth",
            "direct[1].loss",
            "direct[1].latency",
            "direct[2].pairs[0][1]: is required",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    topology, clients, servers, said = CASES[case]
    files = {"s.yaml": SCENARIO % topology, "clients.csv": clients, "servers.csv": servers, "open.csv": OPEN}
    for name, text in files.items():
        Path(name).write_text(text)
    done = hfl("validate", "s.yaml")
    assert done.code == 2
    assert [part for part in said if part not in done.err] == [], done.err
    assert max(map(len, done.err.splitlines())) < 500
