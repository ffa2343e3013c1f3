"""The only room that imports Ray: the session, extraction on actors, tasks, and parts of a pool held by actors."""
