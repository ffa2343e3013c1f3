"""Methods of others, for comparison only: one file each and one line below, outside the registry of samplers.

A peer gets the confidence of every example, draws, looks up the outcomes of its draws, and returns value and interval
as in its paper.
"""

from opacc_ray.study.peers import active, lure, ppi, robust, stratified
from opacc_ray.study.peers.peer import Peer

PEERS: dict[str, Peer] = {
    "ppi++": ppi.estimate,
    "active": active.estimate,
    "active-robust": robust.estimate,
    "lure": lure.estimate,
    "stratified-proxy": stratified.estimate,
}

LEAST_BUDGETS = {"ppi++": 2, "active-robust": 3, "lure": 2, "stratified-proxy": 2}
"""Least number of labels for a peer's variance, where it is more than one."""
