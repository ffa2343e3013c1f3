"""Methods of others, for comparison only: one file each and one line below, outside the registry of samplers.

A peer gets the confidence of every example, draws, looks up the outcomes of its draws, and returns value and interval
as in its paper.
"""

from opacc_ray.study.peers import (
    active,
    active_refit,
    activeeval,
    cross_ppi,
    lure,
    oasis,
    ppi,
    robust,
    sawade,
    strat_ppi,
    stratified_proxy,
    structured,
    two_phase,
)
from opacc_ray.study.peers.peer import F_MEASURES, SLICES, Peer, PeerEstimate, Question, kind_of, weight_of

PEERS: dict[str, Peer] = {
    "ppi++": Peer(ppi.estimate, least=2),
    "cross-ppi": Peer(cross_ppi.estimate, least=10),
    "strat-ppi": Peer(strat_ppi.estimate, least=2),
    "active": Peer(active.estimate),
    "active-refit": Peer(active_refit.estimate, least=2),
    "active-robust": Peer(robust.estimate, least=3),
    "lure": Peer(lure.estimate, least=2),
    "stratified-proxy": Peer(stratified_proxy.estimate, least=2),
    "two-phase": Peer(two_phase.estimate, least=4),
    "sawade": Peer(sawade.estimate, least=2, kind=F_MEASURES),
    "oasis": Peer(oasis.estimate, least=2, kind=F_MEASURES),
    "structured": Peer(structured.estimate, least=2, kind=SLICES),
    "activeeval": Peer(activeeval.estimate, least=2, kind=F_MEASURES),
}
"""By name: the function, the least number of labels for its variance, and what it estimates."""

__all__ = ["PEERS", "Peer", "PeerEstimate", "Question", "kind_of", "weight_of"]
