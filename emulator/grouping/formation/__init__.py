"""Formation rules, one a file: how the clients of an edge (or all clients) become groups.

A rule is a function ``(clients: ClientView, rng, params) -> list[list[int]]``. It returns groups of row
numbers: no client twice, every client once unless the rule says who stays out, members in ascending order. What a rule
declares about itself is a `emulator.contracts.grouping.FormationFacts`.
"""

LOGARITHM_FLOPS = 20  # what one counts: about the terms of the polynomial by which libraries compute it
