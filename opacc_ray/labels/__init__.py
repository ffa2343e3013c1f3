"""The labels of a run: tasks for annotators, what came back, what was done with it, and outcomes round by round."""
