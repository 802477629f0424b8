"""Formation rules, one a file: how the clients of an edge (or all clients) become groups.

A rule is a function ``(clients: ClientView, rng, params) -> list[list[int]]``. It returns groups of row
numbers: no client twice, every client once unless the rule says who stays out, members in ascending order. Facts
that a rule declares about itself:

- ``needs``: what the server must have learnt of the clients: ``"label-counts"``, or ``"estimates"`` for whatever
  the estimator that the user chose says of them (`ClientView.estimates`);
- ``smallest``: a function of the parameters that gives the least number of clients that the rule needs to do
  as asked. With fewer it forms the groups that it can, and with too few for one, a single group of all of them;
- ``most``: a function of the parameters and a number of clients that gives the most groups that these can become;
  without it, as many as ``smallest`` goes into the number;
- ``largest``: a function of the parameters and a number of clients that gives the most clients that a group of these can
  have; without it, all of them;
- ``per_class``: True where estimates must have one number for each class;
- ``flops``: a function ``(clients, numbers, groups, params) -> float`` that counts the floating-point
  operations of forming so many groups, as the rule is written, where the server knows so many numbers of each
  client: its label counts, or its estimate. The aggregator is charged for them. A rule without this fact costs nothing.
"""

LOGARITHM_FLOPS = 20  # what one counts: about the terms of the polynomial by which libraries compute it
