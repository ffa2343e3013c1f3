"""What neurons do over a pool: sections of their ranges, coverage criteria, set cover."""
