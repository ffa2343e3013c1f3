"""``opacc study``: methods compared on pools whose outcomes are all known, as the papers do it, for anyone's data.

A *case* is a pool with the outcome of every example. A *cell* is one method at one budget on one case; each of its
*repetitions* chooses, reveals the outcomes of what it chose, and estimates. The repetitions run as *blocks* in parallel
on Ray; what they say is kept block by block, and measured against simple random sampling at the end.

    cases.py        files → pools with outcomes             measures.py     trials → bias, E, coverage, …
    spec.py         what to study                           table.py        measures as Markdown
    trials.py       the repetitions: blocks of trials       plots.py        measures as figures
    bound.py        the best there could be                 command.py      the command line
    experiment.py   all of it, resumable
"""
