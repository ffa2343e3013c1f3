"""A pool in parts: in this process, or in the actors of a cluster."""
