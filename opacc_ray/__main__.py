"""``python -m opacc_ray`` is ``opacc``."""

import os
import sys

if __name__ == "__main__":
    if sys.path and sys.path[0] in ("", os.getcwd()):  # python -m looks for modules in the current folder first
        sys.path.append(sys.path.pop(0))

    from opacc_ray.cli.main import main

    sys.exit(main())
