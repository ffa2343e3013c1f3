"""Many audits in one queue on one cluster: how accurate each model is, what has changed, when to raise the alarm."""
