"""Sampling rules: which groups train in a round.

A rule is a function ``(groups: GroupView, params) -> log-weights [G]``; what it declares about itself is a
`emulator.contracts.grouping.SamplingFacts`, and its parameters derive from `DrawingParams` there. How many groups to
draw is ``params.count(total)``; `draw` draws them, and `log_inclusion` says how likely each was to be drawn. Weights
stay logarithms throughout, because exp(1/CoV²) is beyond floats for a CoV under 0.037.
"""

from emulator.grouping.sampling.drawing import draw, log_probabilities
from emulator.grouping.sampling.inclusion import log_inclusion

__all__ = ["draw", "log_inclusion", "log_probabilities"]
