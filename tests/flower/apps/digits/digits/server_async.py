"""An asynchronous server: it pushes to every node, pulls what is there, mixes it in, and sends that node the new model."""

import time

import torch
from digits.task import net_for
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    torch.manual_seed(0)
    state = net_for(config["data"]).state_dict()
    version, since, under_way = 0, {}, set()

    def send(node: int) -> None:
        content = RecordDict({"arrays": ArrayRecord(state), "config": ConfigRecord({"version": version})})
        message = Message(content, node, MessageType.TRAIN, group_id=str(max(version, 1)))
        (message_id,) = grid.push_messages([message])
        under_way.add(message_id)
        since[node] = version

    def judge() -> None:
        """All nodes test the model; the others go on meanwhile."""
        content = RecordDict({"arrays": ArrayRecord(state)})
        tests = [Message(content, n, MessageType.EVALUATE, group_id=str(version)) for n in since]
        list(grid.send_and_receive(tests))

    for node in grid.get_node_ids():
        send(node)
    started = time.time()
    updates = config["rounds"] * len(since)
    while version < updates:
        for reply in grid.pull_messages(list(under_way)):
            under_way.discard(reply.metadata.reply_to_message_id)
            node = reply.metadata.src_node_id
            weight = 0.5 / (1 + version - since[node])
            theirs = reply.content["arrays"].to_torch_state_dict()
            for name, value in state.items():
                state[name] = value * (1 - weight) + theirs[name] * weight
            version += 1
            if version % len(since) == 0:
                judge()
            if version + len(under_way) < updates:
                send(node)
        time.sleep(0.05)
    print(f"{version} updates in {time.time() - started:.2f} emulated seconds")
