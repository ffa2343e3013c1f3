"""The documents that a run stores as JSON, and the answer of the commands that draw a round.

The stored estimate is in :mod:`opacc_ray.runs.estimate_documents`.
"""
