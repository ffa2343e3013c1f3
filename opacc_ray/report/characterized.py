"""Characterise runs and write a document, a page and a summary."""

from collections.abc import Sequence
from contextlib import ExitStack

from opacc_ray.audit.characterization import ReferenceSet, characterize_run, class_names, open_reference_run
from opacc_ray.audit.characterization_documents import Characterization
from opacc_ray.characterize.class_coverage import Regions
from opacc_ray.characterize.covariate_shift import Mixtures
from opacc_ray.errors import SpecError
from opacc_ray.lake.store import write_files
from opacc_ray.report.coverage_page import page, summary
from opacc_ray.report.report_documents import WrittenCharacterization
from opacc_ray.runs.identity import versions
from opacc_ray.runs.run import Run
from opacc_ray.study.case_files import READERS
from opacc_ray.study.reference_examples import ClassList, read_labelled

OF_TEST = "characterized-test"
"""Folder next to the estimate for the characterisation of a test set."""

DOCUMENT, PAGE, SUMMARY = "characterization.json", "characterization.html", "characterization.md"


def characterize(
    runs: Sequence[Run],
    references: Sequence[str] = (),
    *,
    tests: Sequence[str] = (),
    regions: Regions | None = None,
    mixtures: Mixtures | None = None,
    seed: int = 0,
) -> Characterization:
    """Measure what the data sets of runs cover, each with the features of its own model.

    Parameters
    ----------
    references : one for each run, in their order: the URI of a run, or of a case (.npz, .parquet, .csv) with labels;
        none: the training data of each run, if its features compare with it
    tests : labelled cases, one for each run, that are measured by label instead of the pools; references need labels
    regions : what counts as near the centroid or a boundary
    mixtures : how shifts are measured; None: they are not

    Raises
    ------
    SpecError
        Another number of references or tests than of runs, or a run of a regression.
    DataError
        A reference cannot be read, or its features have another width than those of the run.
    """
    for option, given in (("reference", references), ("test", tests)):
        if given and len(given) != len(runs):
            raise SpecError(
                f"there are {len(given)} {option}s and {len(runs)} runs; give --{option} once for each RUN, in "
                f"their order: each {option} has the features of one model"
            )
    regions = regions or Regions()
    found = []
    for place, run in enumerate(runs):
        with ExitStack() as stack:
            reference, test = (
                open_reference(given[place], run, stack) if given else None for given in (references, tests)
            )
            found.append(characterize_run(run, reference, regions, mixtures, test))
    return Characterization(
        radius=regions.radius,
        boundary=[regions.low, regions.high],
        seed=seed if mixtures is None else mixtures.seed,
        models=found,
        made_with=versions()["opacc_ray"],
    )


def write_characterization(found: Characterization, run: Run, out: str | None = None) -> WrittenCharacterization:
    """Write the document, the page and the summary to ``out``, or next to the estimate of ``run``.

    The characterisation of a test set goes to a folder of its own there.
    """
    files = {DOCUMENT: found.to_bytes(), PAGE: page(found).encode(), SUMMARY: summary(found).encode()}
    folder = run.results().store(OF_TEST) if out is None and found.models[0].sets[0].name == "test" else None
    return WrittenCharacterization(characterization=found, files=write_files(folder or run.results(out), files))


def read_characterization(run: Run) -> Characterization | None:
    """Return the characterisation next to the estimate of a run; None if there is none."""
    store = run.results()
    if not store.exists(DOCUMENT):
        return None
    return Characterization.from_bytes(store.read(DOCUMENT), store.uri_of(DOCUMENT))


def open_reference(uri: str, run: Run, stack: ExitStack) -> ReferenceSet:
    """Open a labelled case (.npz, .parquet, .csv), or the pool of another run until the stack closes.

    The classes of a case are those of ``run``, by name.
    """
    if uri.rpartition(".")[2].lower() in READERS:
        named = run.spec.model.classes is not None
        return ReferenceSet(uri, *read_labelled(uri, ClassList(class_names(run), named)))
    return stack.enter_context(open_reference_run(uri, run))
