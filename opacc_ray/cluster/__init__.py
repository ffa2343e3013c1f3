"""The only package that imports Ray: joining a cluster, the actor pool, tasks, jobs, features in actors."""
