"""What is believed of an example before it is labelled: how likely the model is wrong on it, and from what signals.

``auxiliary.py`` is the papers' one variable per example; ``signals.py``, ``directions.py`` and ``failure_model.py`` are
what ``neyman`` learns from.
"""
