"""The verbs on one run, on the driver: run, next round, estimate."""

from opacc_ray.registry import Registry

_TRAINING = "opacc_ray.audit.training_data"
EXPORTERS = Registry(
    "exporters", {"failures": f"{_TRAINING}:export_failures", "training": f"{_TRAINING}:export_training"}
)
"""Tool -> function that writes the labelled examples of a run for it to a file or folder."""
