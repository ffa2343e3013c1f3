"""Make the screenshots of the docs: ``make pictures``.

It runs the demo in a folder, and opens its report and a labelling page in Chromium, in light and in dark colours. The
terminal is drawn as a page from what the commands print. Pictures are PNG files of fewer than 256 colours.
"""

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from real_browser import launched

PICTURES = Path(__file__).parent / "pictures"
SCHEMES = ("light", "dark")
MOST_BYTES = 150_000

TERMINAL = """<!doctype html><meta charset="utf-8"><style>
:root {{ color-scheme: light dark }}
body {{ margin: 0; padding: 22px 26px; font: 14px/1.5 "DejaVu Sans Mono", monospace }}
body {{ background: #f6f8fa; color: #1f2328 }}
b {{ color: #00695c }}
pre {{ margin: 0; white-space: pre-wrap }}
@media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; color: #e6edf3 }} b {{ color: #4dd0b5 }} }}
</style><pre>{}</pre>"""


def main(folder: Path) -> None:
    PICTURES.mkdir(exist_ok=True)
    if not (folder / "report.html").exists():
        opacc("demo", "--folder", str(folder))
    [run] = [str(path) for path in (folder / "audits").glob("digits-*") if path.is_dir()]
    opacc("next", run, "--budget", "20")
    with sync_playwright() as playwright, labelling_page(run) as address:
        browser = launched(playwright.chromium)
        for scheme in SCHEMES:
            wide = browser.new_context(viewport={"width": 1280, "height": 740}, color_scheme=scheme)
            shoot(wide, shown_report(folder), f"report-{scheme}")
            wide.close()
            context = browser.new_context(viewport={"width": 900, "height": 680}, color_scheme=scheme)
            shoot(context, address, f"label-{scheme}", first=sign_in)
            context.close()
        shown = terminal(run, str(folder))
        for scheme in SCHEMES:
            context = browser.new_context(viewport={"width": 900, "height": 100}, color_scheme=scheme)
            shoot(context, shown, f"terminal-{scheme}", full=True)
            context.close()
        browser.close()


def opacc(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "opacc_ray", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def shown_report(folder: Path) -> str:
    """The address of the report, without the folder of the demo in its commands."""
    page = folder / "shown.html"
    page.write_text((folder / "report.html").read_text().replace(f"{folder}/audits/", ""))
    return page.as_uri()


def terminal(run: str, folder: str) -> str:
    """A page with two commands and their output, as the address of a file."""
    name = Path(run).name
    lines = []
    for command in (("estimate", run), ("status", run)):
        output = opacc(*command).replace(run, name).replace(folder, "…").rstrip()
        lines += [f"<b>$ opacc {command[0]} {name}</b>", html.escape(output), ""]
    page = Path(folder) / "terminal.html"
    page.write_text(TERMINAL.format("\n".join(lines).rstrip()))
    return page.as_uri()


@contextmanager
def labelling_page(run: str) -> Iterator[str]:
    """The address of the labelling page, while its server runs."""
    command = [sys.executable, "-m", "opacc_ray", "label", run, "--annotator", "ann", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert server.stdout is not None
    try:
        found = next(match[0] for line in server.stdout if (match := re.search(r"http://\S+", line)))
        yield found
    finally:
        server.terminate()
        server.wait(30)


def sign_in(page: Any) -> None:
    """Wait until the page shows an image to label."""
    page.wait_for_timeout(1500)


def shoot(context: Any, address: str, name: str, *, full: bool = False, first: Any = None) -> None:
    """Save a picture of a page."""
    page = context.new_page()
    page.goto(address)
    if first is not None:
        first(page)
    picture = (
        Image.open(BytesIO(page.screenshot(full_page=full))).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    )
    path = PICTURES / f"{name}.png"
    picture.save(path, optimize=True)
    page.close()
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"{path} has {path.stat().st_size} bytes, more than {MOST_BYTES}")
    print(f"wrote {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the demo keeps its files; default: a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opacc-pictures-") as temporary:
        main(given.folder or Path(temporary))
