"""The verbs on one run, on the driver: run, next round, estimate."""
