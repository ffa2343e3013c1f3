"""The result of a run for people: a page, a document, a summary for pull requests, and numbers for trackers."""
