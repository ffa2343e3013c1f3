"""Entry point for `ray job submit -- python jobs/audit.py SPEC.yaml`: the audit of one spec on the job's cluster.

Ray flattens exit codes, so the result is also in the run's prefix: `opacc status RUN` reads it.
"""

import sys

from opacc_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
