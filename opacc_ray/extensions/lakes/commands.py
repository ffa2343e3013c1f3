"""The command that writes a run as tables of a lake: export."""

from typing import TYPE_CHECKING

import click

from opacc_ray.cli.command import Answer, command, on_run

if TYPE_CHECKING:
    from opacc_ray.runs.run import Run


@command("export")
@on_run
@click.option("--to", "lake", metavar="URI", required=True, help="Place of the tables; those of other runs are kept.")
@click.option("--no-features", is_flag=True, help="Leave out the features.")
@click.option("--delta", is_flag=True, help="Append the estimates to a Delta table.")
@click.option(
    "--iceberg",
    metavar="catalog://CATALOG/TABLE",
    help="Append the estimates to an Iceberg table of a catalog in pyiceberg's configuration.",
)
def export(run: "Run", lake: str, no_features: bool, delta: bool, iceberg: str | None) -> Answer:
    """Write features, selections, labels and estimates of a run as Parquet tables."""
    from opacc_ray.errors import counted
    from opacc_ray.extensions.lakes.exported_tables import export_tables
    from opacc_ray.report.facts import facts

    found = export_tables(run, lake, features=not no_features, delta=delta, iceberg=iceberg)
    rows = [(name, counted(count, "row")) for name, count in found.rows.items()]
    return Answer(found, facts(("to", found.to), *rows, ("dictionary", found.dictionary), ("views", found.views)))
