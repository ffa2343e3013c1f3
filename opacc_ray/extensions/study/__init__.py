"""Compare methods on pools whose outcomes are all known: ``opacc study``, for anyone's data.

A *case* is a pool with the outcome of every example. A *cell* is one method at one budget on one case; each of its
*repetitions* chooses, reveals the outcomes of what it chose, and estimates. Repetitions run as *blocks* in parallel on
Ray and are kept block by block; at the end they are measured against simple random sampling.
"""
