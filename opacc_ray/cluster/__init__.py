"""The only room that imports Ray: session, extraction crew, tasks, parts held by actors."""
