"""`opacc demo`: a whole audit on real handwritten digits, with nothing to configure."""
