"""Methods of others, for comparison alone: one file each and one line below. They are not in the registry of samplers.

A peer sees what its paper needs, the confidence of every example, draws, looks up the outcomes of what it drew, and
states value and interval as its paper does.
"""

from opacc_ray.study.peers import active, lure, ppi, robust, stratified
from opacc_ray.study.peers.peer import Peer, PeerEstimate

PEERS: dict[str, Peer] = {
    "ppi++": ppi.estimate,
    "active": active.estimate,
    "active-robust": robust.estimate,
    "lure": lure.estimate,
    "stratified-proxy": stratified.estimate,
}

LEAST_BUDGETS = {"ppi++": 2, "active-robust": 3, "lure": 2, "stratified-proxy": 2}
"""Labels that a peer's variance takes, of those that take more than one."""

__all__ = ["LEAST_BUDGETS", "PEERS", "Peer", "PeerEstimate"]
