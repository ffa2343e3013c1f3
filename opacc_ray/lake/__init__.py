"""Bytes and pools in storage: object stores, and one reader per format."""
