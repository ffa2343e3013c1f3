"""Compare methods on pools whose outcomes are all known: ``opacc study``, for anyone's data.

A *case* is a pool with the outcome of every example. A *cell* is one method at one budget on one case; each of its
*repetitions* chooses, reveals the outcomes of what it chose, and estimates. Repetitions run as *blocks* in parallel on
Ray and are kept block by block; at the end they are measured against simple random sampling.

    cases.py         files → pools with outcomes            measures.py     trials → bias, E, coverage, …; documents
    study_spec.py    what to study                          table.py        measures as Markdown
    trials.py        the repetitions: blocks of trials      plots.py        measures as figures
    bound.py         the least possible variance            experiment.py   all of it, resumable; the command
"""
