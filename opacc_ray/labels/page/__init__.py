"""The web page on which people label."""
