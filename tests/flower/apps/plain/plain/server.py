import concurrent.futures
import time

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


def messages(grid, context, round_, nodes=None, **how):
    arrays = ArrayRecord({"x": Array(np.zeros(context.run_config["size"], np.float32))})
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": round_})})
    return [Message(content, node, "train", **how) for node in (nodes or grid.get_node_ids())]


@app.main()
def main(grid: Grid, context: Context) -> None:
    what, seconds = context.run_config["what"], context.run_config["seconds"]
    if what == "unknown-node":
        list(grid.send_and_receive(messages(grid, context, 1, [12345])))
    elif what == "more-nodes":
        while len(list(grid.get_node_ids())) < 1000:
            time.sleep(1)
    elif what == "pulls-forever":
        while True:
            grid.pull_messages(["nothing"])
    elif what == "computes-forever":
        while True:
            pass
    elif what == "server-raises":
        list(grid.send_and_receive(messages(grid, context, 1)))
        raise ValueError("the server has had enough")
    elif what == "timeout":
        found = list(grid.send_and_receive(messages(grid, context, 1), timeout=seconds))
        print(f"{len(found)} replies after {time.monotonic():.3f} s")
        assert abs(time.monotonic() - seconds) < 1e-9
    elif what == "ttl":
        found = list(grid.send_and_receive(messages(grid, context, 1, ttl=seconds)))
        assert [reply.has_error() for reply in found].count(True) == 1
    elif what == "busy-pulls":
        ids, found, turns = list(grid.push_messages(messages(grid, context, 1))), [], 0
        while len(found) < len(ids):
            found += grid.pull_messages(ids)
            turns += 1
        assert turns <= 2 * len(ids)
    elif what == "threads":
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(grid.send_and_receive, [m]) for m in messages(grid, context, 1)]
            done, rest = concurrent.futures.wait(asked)
        assert len(done) == len(asked)
        assert not rest
    else:
        for round_ in range(1, 4):
            replies = list(grid.send_and_receive(messages(grid, context, round_)))
            assert [int(r.content["metrics"]["turns"]) for r in replies] == [round_] * len(replies)
