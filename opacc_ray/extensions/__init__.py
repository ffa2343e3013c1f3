"""What stands beside the core: one folder per extension, and the names by which the core finds what they offer.

Commands of a folder may be in its ``__init__``. ``case_files`` is no extension, but read by two. The core imports no
extension: it looks a name up in a :class:`opacc_ray.registry.Registry` when it needs it, so an extension costs nothing
until then. Packages of other authors register the same way, by entry points of the groups
``opacc.methods``, ``opacc.designs``, ``opacc.formats``, ``opacc.stores``, ``opacc.label_formats``, ``opacc.entries``,
``opacc.exporters``, ``opacc.commands`` and ``opacc.sections``: ``examples/extension`` shows most of them.
"""

OFFERS: dict[str, dict[str, str]] = {
    "methods": {"coverage": "characterize.coverage"},
    "formats": {
        "delta": "lakes.delta",
        "huggingface": "lakes.huggingface",
        "iceberg": "lakes.iceberg",
        "lance": "lakes.lance",
    },
    "catalogs": {"delta": "lakes.catalogs:UnityTable", "iceberg": "lakes.catalogs:iceberg_table"},
    "stores": {"gs": "lakes.arrow_store:open_arrow", "abfss": "lakes.arrow_store:open_arrow"},
    "label_formats": {
        "cvat": "labelling.labelling_tools:CVAT",
        "ground-truth": "labelling.labelling_tools:GROUND_TRUTH",
    },
    "entries": {"opacc-signed/1": "evidence.evidence:Signed"},
    "exporters": {
        "case": "study.cases:export_case",
        "fiftyone": "labelling.labelling_tools:export_to_fiftyone",
    },
    "commands": {
        "fleet": "fleet.commands:fleet",
        "metrics": "fleet.commands:metrics",
        "history": "fleet.commands:history",
        "watch": "fleet.commands:watch",
        "characterize": "characterize.commands:characterize",
        "generate": "characterize.commands:generate",
        "suite": "suites:suite",
        "regress": "suites:regress",
        "evidence": "evidence:group",
        "verify": "evidence:verify_command",
        "study": "study.commands:study",
        "drift": "study.commands:drift",
        "mlflow": "trackers:mlflow",
        "demo": "demo:demo",
        "export": "lakes.commands:export",
        "runs": "outputs.commands:runs",
        "manifest": "labelling.commands:manifest",
        "submit": "jobs.commands:submit",
    },
    "sections": {"characterization": "characterize.coverage_page"},
    "names": {
        "Discovery": "discovery:Discovery",
        "characterize": "characterize.characterization:characterize",
        "discover": "discovery:discover",
        "load_example": "demo.digits:load_example",
        "make_suite": "suites.suites:make_suite",
        "regress": "suites.suites:regress",
    },
}
"""By kind: name -> module below this package, or ``module:attribute``. ``names`` are those of `import opacc_ray`."""
