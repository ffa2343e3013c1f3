"""Methods of others, for comparison only: a function each and a line below, outside the registry of samplers.

A peer gets the confidence of every example, draws, looks up the outcomes of its draws, and returns value and interval
as in its paper.
"""

from opacc_ray.extensions.study.peers.accuracy import (
    active_inference,
    cross_prediction,
    lure,
    ppi,
    robust_inference,
    sequential_inference,
    stratified_ppi,
    stratified_proxy,
    two_phase,
)
from opacc_ray.extensions.study.peers.f_measures import activeeval, oasis, sawade
from opacc_ray.extensions.study.peers.peer import F_MEASURES, SLICES, Peer, PeerEstimate, Question, kind_of, weight_of
from opacc_ray.extensions.study.peers.structured import structured

PEERS: dict[str, Peer] = {
    "ppi++": Peer(ppi, least=2),
    "cross-ppi": Peer(cross_prediction, least=10),
    "strat-ppi": Peer(stratified_ppi, least=2),
    "active": Peer(active_inference),
    "active-refit": Peer(sequential_inference, least=2),
    "active-robust": Peer(robust_inference, least=3),
    "lure": Peer(lure, least=2),
    "stratified-proxy": Peer(stratified_proxy, least=2),
    "two-phase": Peer(two_phase, least=4),
    "sawade": Peer(sawade, least=2, kind=F_MEASURES),
    "oasis": Peer(oasis, least=2, kind=F_MEASURES),
    "structured": Peer(structured, least=2, kind=SLICES),
    "activeeval": Peer(activeeval, least=2, kind=F_MEASURES),
}
"""By name: the function, the least number of labels for its variance, and what it estimates."""

__all__ = ["PEERS", "Peer", "PeerEstimate", "Question", "kind_of", "weight_of"]
