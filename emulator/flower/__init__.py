"""Flower apps on the emulated clock: an app's own server and client code, unchanged, on the world of a scenario.

The app's server runs in a thread that alternates strictly with the clock (`turns`): while it computes the clock stands, and
while it waits (for replies, or in ``time.sleep``) the clock goes on. Its `Grid` (`grid`) sends every message with its true
bytes over the links of the world (`exchange`). Clients' code runs in worker processes (`clients`, `worker`), what it took
becomes seconds on the client's device (`pricing`), and replies are remembered by what determines them (`replies`). `run` puts
it together and writes an ordinary run folder (`results`).

Nothing here imports flwr before `support.check` has found a version that is supported.
"""
