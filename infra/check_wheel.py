"""Run the demo from a built wheel, in a clean virtual environment outside the repository.

    python infra/check_wheel.py dist/opacc_ray-….whl

The new environment gets the wheel by pip. Dependencies are linked from the environment of the Python that runs this,
which saves minutes of downloads; its editable install of the repository stays behind, for what a path file links is
searched but its own path files are not read. Fails if opacc_ray comes from anywhere but the wheel.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

PLACE = "import opacc_ray; print(opacc_ray.__file__)"


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="opacc-wheel-") as home:
        folder = Path(home).resolve()
        venv.create(folder / "venv", with_pip=False)
        bin_folder, site = folder / "venv" / "bin", next(folder.glob("venv/lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(bin_folder / "python"), "--disable-pip-version-check"]
        _run(
            [*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", str(wheel.resolve())], folder
        )
        place = Path(_run([str(bin_folder / "python"), "-c", PLACE], folder).strip())
        print(f"opacc_ray is {place}")
        if site not in place.parents:
            sys.exit(f"opacc_ray was imported from {place}, not from the wheel in {site}")
        if not place.with_name("py.typed").exists():
            sys.exit(f"{wheel.name} lacks py.typed")
        print(_run([str(bin_folder / "opacc"), "demo", "--folder", str(folder / "demo")], folder))


def _run(command: list[str], folder: Path) -> str:
    """What it prints, with a path of its own; ends this program if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
