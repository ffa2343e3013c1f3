"""The command line, `opacc`."""
