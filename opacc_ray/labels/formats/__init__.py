"""Formats of label files and labelling tools: one file per tool."""
