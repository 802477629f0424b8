"""Formation rules, one a file: how the clients of an edge (or all clients) become groups.

A rule is a function ``(clients: ClientView, rng, params) -> list[list[int]]``. It returns groups of row
numbers: every client exactly once, members in ascending order. Facts that a rule declares about itself:

- ``needs``: what the server must have learnt of the clients, for example ``("label-counts",)``;
- ``smallest``: a function of the parameters that gives the least number of clients that the rule needs to do
  as asked. With fewer it returns a single group of all of them;
- ``flops``: a function ``(clients, classes, groups, params) -> float`` that counts the floating-point
  operations of forming so many groups, as the rule is written. The aggregator is charged for them. A rule
  without this fact costs nothing.
"""

LOGARITHM_FLOPS = 20  # what one counts: about the terms of the polynomial by which libraries compute it
