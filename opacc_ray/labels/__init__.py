"""The labels of a run: tasks for annotators, files that come back, their log, and the outcomes that they give."""
