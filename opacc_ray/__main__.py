"""``python -m opacc_ray`` is ``opacc``."""

import sys

from opacc_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
