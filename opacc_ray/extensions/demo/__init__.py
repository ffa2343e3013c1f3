"""The command that shows a whole audit: demo."""

import sys
from pathlib import Path

import click

from opacc_ray.cli.command import Answer, command, open_page
from opacc_ray.runs.run_names import remember


@command("demo")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder to keep (default: a new one, opacc-demo).")
@click.option("--label", is_flag=True, help="Label ten digits yourself on the labelling page.")
@click.option("--no-browser", is_flag=True, help="Print addresses instead of opening a browser.")
def demo(folder: Path | None, label: bool, no_browser: bool) -> Answer:
    """Run a whole audit on bundled data in less than a minute, and open its report."""
    from opacc_ray.extensions.demo.audit import run_demo
    from opacc_ray.stored_audit import Audit

    browser = not no_browser and sys.stdout.isatty()
    ask = (lambda run: Audit(run).label(annotator="you", browser=browser)) if label else None
    document, lines = run_demo(folder, ask=ask)
    remember(document.run)
    if browser:
        open_page(document.report)
    return Answer(document, lines)
