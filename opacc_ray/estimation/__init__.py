"""Accuracy from labelled samples: values and intervals. :func:`opacc_ray.estimate` is the way in for users."""
