"""A pool in parts, wherever its rows live."""
