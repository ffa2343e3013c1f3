"""A journey, once, in the process that commands are forked from: so all is imported and compiled."""

import os
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from chaos.journeys import COMMANDS, FINAL, write_journey
from opacc_ray.cli.main import main

before = os.getcwd()
with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    os.chdir(folder)
    write_journey(Path(folder), "folder", f"{folder}/outputs")
    for command in (*COMMANDS, FINAL):
        run = next(Path("outputs").glob("journey-*"), "")
        main(command.replace("RUN", str(run)).replace("OUTPUT", "outputs").split())
    os.chdir(before)
