"""What secure aggregation costs, from measurements of the protocol of Bonawitz et al. (CCS 2017).

Source: run times published with Mansouri et al., "Learning from Failures" (ACSAC 2022; github
MohamadMansouri/fault-tolerant-secure-agg, results/ccs17): a single-threaded Python implementation on an Intel
Xeon E5-2697 v4 at 2.3 GHz, without a network; 100 to 1,000 clients, 1,000 to 300,000 parameters, 0 to 30 %
dropouts. The constants are least-squares fits of relative errors to their mean times. A client's time plus
the server's is met within 7 % at 100 clients from 10,000 parameters on, and within 8 % up to 300 clients from
100,000 parameters on. Groups below 100 clients are an extrapolation. The server also showed a cubic term
(secret sharing) of 1.8e-7 n³ seconds, which is left out: up to 100 clients it is below 0.2 s.

This is the short form, quadratic in n, that device profiles hold. `devices.secagg.cost` counts the protocol's operations
and bytes one by one; on the same measurements the two agree within 6 % up to 100 clients at the reference setting below.
"""

from __future__ import annotations

from typing import Any

from devices.profile import Curve, Terms
from devices.secagg.constants import find_constants
from devices.secagg.cost import fixed_curve

REFERENCE_PARAMETERS = 100_000  # the curves in the profiles are for a model of this size
REFERENCE_DROPOUT = 0.05  # for this share of members that drop out after they shared their keys
REFERENCE_THRESHOLD = 0.66  # and for this share that must stay to the end

# Seconds on the measured Xeon. "Mask" is one expansion of a seed into a vector of 100,000 parameters.
_PARAMETERS_OF_A_MASK = 100_000
CLIENT_MASK_S = 0.0865  # a client, for each member: the mask that the two share
CLIENT_PEER_S = 0.0028 + 0.00317  # a client, for each member: key agreement; encrypting and decrypting shares
CLIENT_SHARE_S = 3.5e-6  # a client, for each pair of members: the polynomials of the secret sharing
SERVER_MASK_S = 0.106  # the server, for each member that stayed: its own mask is removed
RECOVERY_MASK_S = 0.0865  # the server, for each dropped member and each other member: the mask that they shared
RECOVERY_PAIR_S = 0.00277  # the server, for the same pairs: key agreement and reconstruction


def curve(parameters: int, dropout: float, slowdown: float, vectors: int = 1, server_slowdown: float = 1.0) -> Curve:
    """Seconds that a member of a group spends in one secure aggregation: work, then waiting for the server.

    ``parameters`` is the size of the model and ``vectors`` how many vectors of that size are aggregated (2
    with SCAFFOLD's control variates). ``dropout`` is the share of members that drop out. The slowdowns say
    how many times slower than the measured Xeon one core of the member, and of its server, is. Everybody
    waits while the server recovers the masks of those that dropped out; nearly all of the quadratic term
    comes from there. What is proportional to the size of the model is all but what the protocol's counts take
    without any vector (`fixed_curve`, with the constants of the same measurements): so the curve, at other sizes
    too, is within 6 % of `devices.secagg.cost` up to 100 clients. Raises ``ValueError`` for values out of range.
    """
    if parameters < 1 or vectors < 1:
        raise ValueError(f"parameters and vectors must be at least 1, not {parameters} and {vectors}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
    if not (slowdown > 0 and server_slowdown > 0):
        raise ValueError(f"slowdowns must be greater than 0, not {slowdown} and {server_slowdown}")
    masks = parameters * vectors / _PARAMETERS_OF_A_MASK
    whole: dict[str, Any] = {
        "a": 0.0,
        "b": slowdown * (CLIENT_MASK_S * masks + CLIENT_PEER_S) + server_slowdown * SERVER_MASK_S * masks,
        "c": slowdown * CLIENT_SHARE_S + server_slowdown * dropout * (RECOVERY_MASK_S * masks + RECOVERY_PAIR_S),
    }
    fixed = fixed_curve(dropout, REFERENCE_THRESHOLD, find_constants().constants, slowdown, server_slowdown)
    masking: dict[str, Any] = {term: max(0.0, seconds - getattr(fixed, term)) for term, seconds in whole.items()}
    return Curve.model_construct(**whole, parameters=parameters, proportional=Terms.model_construct(**masking))
