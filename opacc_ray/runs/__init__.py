"""A run in storage: its prefix, its rounds as they were drawn, its features."""
