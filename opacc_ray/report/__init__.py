"""The result of a run for people: a page, a document, and a summary for pull requests."""
