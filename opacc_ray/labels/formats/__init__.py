"""Formats of label files and labelling tools: one file each, all registered in ``label_formats``."""
