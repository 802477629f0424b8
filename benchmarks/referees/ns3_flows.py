"""Flows over links, packet by packet in ns-3: JSON on standard input, JSON on standard output (see README.md beside this file).

Runs in an environment with the package `ns3` (3.44). Every link has a drop-tail queue of its own and no other queue. TCP is set
as Linux sets it: CUBIC with SACK, ten segments at the start, no retransmission timeout below 200 ms, buffers of 6 MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from case import FRAME_BYTES, PAYLOAD_BYTES, Case, RefusedError, read_case, refuse

SEEN_BYTES = 1502  # of a full frame on ns-3's point-to-point link

SOURCE = """
#include <vector>
#include <string>
#include <sstream>
using namespace ns3;
namespace referee {
std::vector<uint64_t> got, wanted;
std::vector<double> ended;
uint32_t left = 0;
uint64_t drops = 0;

void Received(uint32_t flow, Ptr<const Packet> packet, const Address&) {
  got[flow] += packet->GetSize();
  if (got[flow] >= wanted[flow] && ended[flow] < 0) {
    ended[flow] = Simulator::Now().GetSeconds();
    if (--left == 0) Simulator::Stop();
  }
}
void Dropped(Ptr<const Packet>) { ++drops; }

// Links as tail, head, bit/s, seconds, packets; flows as first node, last node, bytes, start.
std::vector<double> Play(uint32_t nodes, std::vector<double> links, std::vector<double> flows, uint32_t run, double limit,
                         std::string congestion) {
  RngSeedManager::SetSeed(1);
  RngSeedManager::SetRun(run + 1);
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::" + congestion));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(PAYLOAD));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(6000000));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6000000));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
  Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
  Config::SetDefault("ns3::TcpCubic::HyStartDelayMax", TimeValue(MilliSeconds(16)));
  NodeContainer all;
  all.Create(nodes);
  InternetStackHelper stack;
  stack.Install(all);
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  std::vector<Ipv4Address> of(nodes);
  TrafficControlHelper traffic;
  drops = 0;
  for (size_t i = 0; i < links.size(); i += 5) {
    PointToPointHelper wire;
    wire.SetDeviceAttribute("DataRate", DataRateValue(DataRate((uint64_t) links[i + 2])));
    wire.SetChannelAttribute("Delay", TimeValue(Seconds(links[i + 3])));
    wire.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, (uint32_t) links[i + 4])));
    NetDeviceContainer ends = wire.Install(all.Get((uint32_t) links[i]), all.Get((uint32_t) links[i + 1]));
    Ipv4InterfaceContainer given = addresses.Assign(ends);
    addresses.NewNetwork();
    traffic.Uninstall(ends);
    of[(uint32_t) links[i]] = given.GetAddress(0);
    of[(uint32_t) links[i + 1]] = given.GetAddress(1);
  }
  for (uint32_t i = 0; i < nodes; ++i)  // where a device's queue is full, the layer above it drops
    all.Get(i)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext("TcDrop", MakeCallback(&Dropped));
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  left = flows.size() / 4;
  got.assign(left, 0);
  wanted.assign(left, 0);
  ended.assign(left, -1.0);
  for (uint32_t f = 0; f < flows.size() / 4; ++f) {
    wanted[f] = (uint64_t) flows[4 * f + 2];
    uint16_t port = 5000 + f;
    Ptr<Node> to = all.Get((uint32_t) flows[4 * f + 1]);
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer receiver = sink.Install(to);
    receiver.Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&Received, f));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(of[(uint32_t) flows[4 * f + 1]], port));
    bulk.SetAttribute("MaxBytes", UintegerValue(wanted[f]));
    bulk.SetAttribute("SendSize", UintegerValue(PAYLOAD));
    ApplicationContainer sender = bulk.Install(all.Get((uint32_t) flows[4 * f]));
    sender.Start(Seconds(flows[4 * f + 3]));
  }
  Simulator::Stop(Seconds(limit));
  Simulator::Run();
  Simulator::Destroy();
  return ended;
}
}
"""


def main() -> None:
    """Plays what standard input asks for: one case, or a list of cases."""
    try:
        given = json.load(sys.stdin)
        cases = [read_case(json.dumps(each)) for each in (given if isinstance(given, list) else [given])]
        with _quiet():
            from ns import ns
    except RefusedError as error:
        refuse(error)
    except ValueError as error:
        refuse(RefusedError(f"the input is no JSON: {error}"))
    except ImportError as error:
        refuse(RefusedError(f"the package 'ns3' is missing ({error})"))
    with _quiet():
        ns.cppyy.cppdef(SOURCE.replace("PAYLOAD", str(PAYLOAD_BYTES)))
    results = [played(case, ns.cppyy.gbl) for case in cases]
    json.dump(results if isinstance(given, list) else results[0], sys.stdout)


def played(case: Case, c: Any) -> dict[str, Any]:
    """The seconds of every flow in every repeat, None of one that did not end; ``c`` is the world of C++."""
    nodes, links, names = layout(case)
    congestion = {"cubic": "TcpCubic", "reno": "TcpLinuxReno"}[case.congestion]
    vector, results, notes = c.std.vector["double"], [], []
    for repeat in range(case.repeats):
        flows = [
            float(value)
            for flow, late_s in zip(case.flows, case.late_s(repeat), strict=True)
            for value in (names[flow.route[0]][0], names[flow.route[-1]][1], flow.bytes, flow.start_s + late_s)
        ]
        ended = list(c.referee.Play(nodes, vector(links), vector(flows), repeat, case.limit_s, congestion))
        if min(ended) < 0:
            notes.append(f"repeat {repeat}: {sum(e < 0 for e in ended)} flows had not ended after {case.limit_s:g} s")
        results.append([e - f.start_s if e >= 0 else None for e, f in zip(ended, case.flows, strict=True)])
        notes.append(f"repeat {repeat}: {c.referee.drops} packets dropped")
    return {"referee": "ns-3 3.44", "repeats": results, "notes": notes}


def layout(case: Case) -> tuple[int, list[float], dict[str, tuple[int, int]]]:
    """How many nodes there are, the links as numbers for `Play`, and the nodes at the ends of each link by name."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def find(end: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(end, end) != end:
            end = parent[end]
        return end

    for flow in case.flows:
        for before, after in zip(flow.route, flow.route[1:], strict=False):
            parent[find((before, 1))] = find((after, 0))
    ends = {name: (find((name, 0)), find((name, 1))) for name in case.links}
    numbers = {node: i for i, node in enumerate(dict.fromkeys(end for pair in ends.values() for end in pair))}
    names = {name: (numbers[a], numbers[b]) for name, (a, b) in ends.items()}
    links: list[float] = []
    for name, link in case.links.items():
        links += [*names[name], link.rate_bps * SEEN_BYTES / FRAME_BYTES, link.delay_s, link.queue_packets]
    return len(numbers), links, names


@contextlib.contextmanager
def _quiet() -> Any:
    """A block in which the compiler inside cppyy says nothing on standard error."""
    sys.stderr.flush()
    before, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nothing)


if __name__ == "__main__":
    main()
