"""One run, on the driver: its prefix, its features, its rounds of labels, its results."""
