"""The verbs on one run, on the driver: plan, run, next round, estimate, verify, export."""
