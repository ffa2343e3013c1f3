"""Manifests out, labels in, and what they say of the model."""
