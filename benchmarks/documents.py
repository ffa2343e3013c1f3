"""The documents in docs/results: what each holds, which script measures it, and how pages quote it.

A document holds one block between `<!-- results:NAME -->` and `<!-- /results -->`: what its script printed. Every page
that has a block of the same name, such as the README, holds a copy of it.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = "docs/results"
BLOCK = re.compile(
    r"^(<!-- results:(?P<name>\w+) -->\n)(?P<content>.*?)^(<!-- /results -->)$", re.DOTALL | re.MULTILINE
)


class Document(NamedTuple):
    """One file of docs/results."""

    title: str
    script: tuple[str, ...]  # of benchmarks/, with its first arguments
    text: str  # what the numbers are


DOCUMENTS = {
    "methods": Document(
        "Methods compared",
        ("study_tables.py", "methods"),
        """\
Mean squared error of the estimate from 200 labels over that of a simple random sample (SRS) of as many: 0.5 halves the
labels, above 1 wastes them. 1,000 repetitions, so that a tenth is within chance. The *bound* is the least that an
unbiased method could reach which sees what `neyman` sees and knew all outcomes beforehand (Godambe and Joshi;
`opacc_ray/study/bound.py`). `ppi++` to `stratified-proxy` are methods of others for the same question, which see the
confidence alone (`opacc_ray/study/peers`). `–` is a feature that a case lacks. `deepreduce` is deterministic: one draw,
no mean. The study's own `table.md` has the intervals, bias, coverage, failures and time of every cell.""",
    ),
    "neyman": Document(
        "neyman in one round and in four",
        ("study_tables.py", "neyman"),
        """\
E is the mean squared error over that of a simple random sample with as many labels, in brackets its 95 % interval; the
*bound* is the least E that an unbiased method could have if the same failure model knew all outcomes beforehand
(Godambe and Joshi; `opacc_ray/study/bound.py`). *By rounds* is four rounds with `combine: rounds`, *others* the least E
of the methods in `opacc_ray/study/peers`. *Covers* is the share of 95 % intervals that hold the truth, in percent, and
*failures* those found, in multiples of SRS; both for one round and for four. *Bias* is that of four rounds, in standard
deviations of SRS.""",
    ),
    "control": Document(
        "The control: confidence in random order",
        ("study_tables.py", "control"),
        """\
E, the mean squared error over that of a simple random sample with as many labels, where confidence is shuffled, so that
it says nothing: the price of having trusted it. 1,000 repetitions.""",
    ),
    "misled": Document(
        "neyman with a reference, and misled",
        ("misled.py",),
        """\
`neyman` on classifications with hidden layers and surprise, as each case has them. A *reference* is 2,000 examples with
their outcomes, which were taken out of the pool; then something is wrong with it, or with the confidence. *E* is the
mean squared error over that of a simple random sample with as many labels; *worst* is the case with the largest, which
is in part chance where many are near it; *covers* the least share, over the cases, of 95 % intervals that hold the
truth, in percent. What follows ± is one standard error.""",
    ),
    "gap": Document(
        "Where neyman loses to its bound",
        ("bound_gap.py",),
        """\
The variance of the estimate given the designs of four rounds that were drawn, over that of a simple random sample with
as many labels: as it is, and with what the failure model says that has seen all outcomes, as in the *bound*, in place
of the p that is used at the end, of the inclusion probabilities π of every round, or of both.""",
    ),
    "prices": Document(
        "What a price buys and costs",
        ("prices.py",),
        """\
`neyman` with other prices than the default: the variance of the estimate given the designs that were drawn, over that
of a simple random sample with as many labels, in the mean over the cases, and in the case where it is largest. Cases as
they are, with outcomes or the confidence in random order, and with the confidence reversed.""",
    ),
    "ces": Document(
        "CES: objectives and settings",
        ("ces_objectives.py",),
        """\
E is the mean squared error of the estimate over that of a simple random sample of the same size, in brackets the bias
in standard deviations of the latter. A tenth of a point in E is within chance.""",
    ),
    "deepest": Document(
        "DeepEST beside its paper",
        ("deepest_table2.py",),
        """\
Failures found with 200 tests, ours / published in Table II of the paper, on the five subjects that its authors
published, and how far the mean estimate is from the truth, in standard errors of that mean. The authors' means are of
30 repetitions; ours count as equal within 3 % or one failure.""",
    ),
    "intervals": Document(
        "Coverage of intervals",
        ("intervals_coverage.py",),
        """\
How often 95 % intervals hold the truth, and how wide they are: of the accuracy of every class, of the difference of two
models, of a mean cost, of confidence sequences (at every look) and of replicates. *Two rounds* have the intervals of
their designs; *as of any kind* is what `opacc_ray/estimators/rounds.py` alone would state. *Mostly wrong* is a model
that is right where this one is wrong, *rare losses* are scores of which 2 % are 0, anywhere, and the others nearly 1.
Then estimates that are assisted by the model's confidence in the whole pool, or by outcomes of which 15 % are reversed:
three numbers each, without assistance / with strength 1 / tuned. E and bias are relative to a simple random sample of
as many labels.""",
    ),
    "coverage": Document(
        "Coverage and width of intervals, by level",
        ("coverage_grid.py",),
        """\
How often the interval of each level holds the truth, in percent, and how wide it is: half of the 95 % interval over
1.96 root mean squared errors of the estimate, so that 1 is as narrow as a normal law allows. *E* is the mean squared
error over the variance of a simple random sample with as many labels, *failures met* the mean number among the labels.
Pools are made, with failures where the confidence says (*calibrated*), or anywhere (*silent*).""",
    ),
    "models": Document(
        "Several models by one set of labels",
        ("many_models.py",),
        """\
Models that answer the same items, audited together. *E* is the mean squared error of a model's accuracy over that of a
simple random sample with as many labels, *own labels* the same where each model has as many labels to itself, *of
differences* that of the difference of two models by the same sample. *Covers* is the share of 95 % intervals of an
accuracy that hold the truth, *all differences* the share of audits in which those of all differences do, in percent;
*width* is half of such an interval over 1.96 standard deviations of the difference by a simple random sample. *Best
chosen* is how often the best model has the highest estimate, in percent, *P(best)* the mean probability stated for it.
Two at once are all pairs in turn, with how many of the other models got an item wrong as `prior`; where all are audited
at once nothing is known of the items but the labels, and there are a fifth as many repetitions.""",
    ),
    "until": Document(
        "Rounds until the interval is ±W",
        ("until.py",),
        """\
What `opacc next --until ±W` takes, from a first round of 30 labels, beside a number of labels planned in advance: one
at which half of the ordinary 95 % intervals are ±W or narrower (in one round; `neyman` in four). *Overshoot* is the
median of labels over that number, less one. An *error* is an interval, stated at the end, that excludes the truth; 5 %
are allowed. The second table has all rows of a method; *from 100 planned* leaves out goals that a hundred labels reach,
where the first round and the smallest further one are most of what it takes.

The third table is of counts with exact intervals, where nothing but the rule itself is tried: labels as a multiple of
those planned. *Plain* looks with all of α and without caution where few failures are met. *Spent* shares α between the
looks, so that the interval would hold whatever made one stop: four fifths at the planned last look, half of what is
left at each further one, with the correlation of successive looks.""",
    ),
    "characterize": Document(
        "Do the measures of a data set tell anything?",
        ("characterize_study.py",),
        """\
EP, CP, BC, PBC and the shift with the defaults of `opacc characterize`. First table: median over classes (PBC: pairs)
with the least and the largest; half of the digits and 20,000 images of Fashion-MNIST are training data and reference.

Second table: Spearman's rank correlation between a measure and the drop of accuracy over 21 pools of 4,000 test images
of Fashion-MNIST: one as it is, and darkness, noise, occlusion, blur and other class shares in four strengths each;
*images only* is without the class shares. In brackets its 95 % bootstrap interval over the pools. Measures are taken
without any label, beside the reference; those below the fifth row are what people use already.

Third table: the same between a measure of predicted classes and their share of failures, ten classes a case, and
between the pairs near a boundary and the pairs that are confused, 90 a case. Fourth: mean squared error with 200
labels over that of a simple random sample, and the bias in standard deviations of it; `neyman` in one round. Fifth:
vectors in shares centroid-boundary, made from labelled test images; *violations* are the moves that break a rule, in
percent of all five.""",
    ),
    "characterize_scale": Document(
        "EP, CP, BC and PBC of ten million examples",
        ("characterize_scale.py",),
        """\
A hidden layer of 64 neurons, 10 classes, files of 50,000 examples on a local disk. *Measure* holds reading the
features and both sweeps over them; *driver* is the most memory of the process that asks, without its actors; one
*digest* says that all numbers are the same, bit for bit.""",
    ),
    "throughput": Document(
        "A job beside a bare loop, and beside Ray Data",
        ("throughput.py", "--ray-data"),
        """\
Images from a real S3 server on the same machine through one actor, beside a loop without Ray and without this package
that reads, decodes and computes the same with the same threads and writes nothing; and PNGs in a folder beside Ray
Data, whole command against whole command. *Start-up* lasts until the end of the first batch; images a second are
counted from there to the end of the last write.""",
    ),
    "chaos": Document(
        "Audits that are disturbed",
        ("disturbed_audits.py",),
        """\
Audits on a Ray cluster of three nodes with an S3 server behind a door that fails (`tests/chaos`). What happens to each,
and when, is drawn by its seed; it is started again until it is done, and compared with an undisturbed one byte by byte.
*Too late* is what found nothing left to disturb.""",
    ),
    "speed": Document(
        "Speed",
        ("bench.py",),
        """\
The fast paths beside plain transcriptions of the formulas, in one process, which checks that the two agree. Times are
medians of 5 calls after one that compiles; memory is what a call allocates over its input at its peak. Machines are
noisy: compare ratios.""",
    ),
    "driver": Document(
        "What drawing costs the driver",
        ("driver_memory.py",),
        """\
Drawing 200 examples from pools whose features are held by two actors on the same machine: the most memory that the
driver's process held, in megabytes, of which libraries and Ray take what it held before and, where a method compiles,
about 110 more; seconds until the actors held what the method reads, which they do once; and seconds of the draw. Labels
do not change what it takes, and neither does the number of actors change what is drawn.""",
    ),
    "fashion": Document(
        "A job on 10,000 images",
        ("fashion_job.py",),
        """\
The audit job on the test images of Fashion-MNIST as PNG files in a real S3 server on the same machine, beside a plain
torch loop over the same arrays in memory; and the accuracy that 100 labels give, seed 1.""",
    ),
}
"""By name: of the file, of the block, and of the argument of write_results.py."""


def path_of(name: str, root: Path = ROOT) -> Path:
    return root / RESULTS / f"{name}.md"


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown pages that may quote a block."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])


def blocks(text: str) -> dict[str, str]:
    """Content of a page's blocks by name."""
    return {found["name"]: found["content"] for found in BLOCK.finditer(text)}


def render(name: str, command: str, stamp: str, content: str) -> str:
    """A whole document."""
    document = DOCUMENTS[name]
    return (
        f"# {document.title}\n\n    {command}\n\n{stamp}\n\n{document.text}\n\n"
        f"<!-- results:{name} -->\n{content.strip()}\n<!-- /results -->\n"
    )


def copy_blocks(root: Path = ROOT) -> list[Path]:
    """Copy every document's block to the pages that quote it; returns the pages that changed.

    Raises
    ------
    SystemExit
        A page quotes a document that does not exist.
    """
    source = {name: blocks(path_of(name, root).read_text())[name] for name in DOCUMENTS if path_of(name, root).exists()}
    changed = []
    for page in pages(root):
        old = page.read_text()
        missing = blocks(old).keys() - source.keys()
        if missing:
            raise SystemExit(f"{page} quotes results:{missing.pop()}, which is not in {root / RESULTS}")
        new = BLOCK.sub(lambda found: f"{found[1]}{source[found['name']]}{found[4]}", old)
        if new != old:
            page.write_text(new)
            changed.append(page)
    return changed
