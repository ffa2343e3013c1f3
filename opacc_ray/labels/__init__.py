"""The labels of a run.

| step | modules |
|---|---|
| what annotators get | ``labelling_tasks``, ``formats/``, ``example_files``, ``picture_rendering``, ``page/`` |
| what comes back | ``label_rows``, ``formats/``, ``label_actions`` with ``import_summary`` |
| what is kept | ``label_log``: files and actions, none of which is ever changed |
| what counts | ``joining``: one label per example; ``labelled_rounds``: outcomes by round |
| what people look up | ``answer_history``, ``annotator_agreement``, ``fiftyone_export``, ``label_documents`` |
"""
