"""The runs of one audit over time: how the pool of one has grown, what features of an earlier run still hold, and how
many attempts a number is one of: other runs of the same pool, their seeds, and draws that were replaced.

Runs of one population are one series over time; others are kept apart. A population is defined by the place and format
of the pool, its filter, split and table, and by task and classes. Neither the version of the data nor the model belongs
to it, because they change over time. If a spec names its population, the name replaces the keys of the pool.
"""
