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
Mean squared error of the estimate from the largest number of labels over that of a simple random sample (SRS) of the
same size: 0.5 means that half the labels are enough, above 1 is worse than SRS. The *bound* is the least error of an
unbiased method with the features of `neyman` and a failure model that knew all outcomes beforehand (Godambe and Joshi;
`opacc_ray/study/bound.py`). `ppi++` to `stratified-proxy` are published methods for the same question, which use the
confidence alone (`opacc_ray/study/peers`). `–`: the case lacks a feature that the method needs. `deepreduce` is
deterministic: one draw, no mean. The study's own `table.md` has intervals, bias, coverage, failures and times.""",
    ),
    "neyman": Document(
        "neyman in one round and in four",
        ("study_tables.py", "neyman"),
        """\
E is the mean squared error over that of a simple random sample (SRS) of the same size, with its 95 % interval. The
*bound* is the least E of an unbiased method whose failure model knew all outcomes beforehand (Godambe and Joshi;
`opacc_ray/study/bound.py`). *By rounds*: four rounds with `combine: rounds`. *Others*: the least E of the methods in
`opacc_ray/study/peers`. *Covers*: the share of 95 % intervals that contain the truth, in percent. *Failures*: those
found, in multiples of SRS. Both are given for one round and for four. *Bias*: of four rounds, in standard deviations
of SRS.""",
    ),
    "control": Document(
        "The control: confidence in random order",
        ("study_tables.py", "control"),
        """\
E, the mean squared error over that of a simple random sample of the same size, where the confidence is shuffled and so
contains no information: the cost of having used it.""",
    ),
    "misled": Document(
        "neyman with a reference, and misled",
        ("misled.py",),
        """\
`neyman` on classifications with hidden layers and surprise, as each case has them. A *reference* is 2,000 examples
with their outcomes, taken out of the pool. In most rows something is wrong with it, or with the confidence. *E* is the
mean squared error over that of a simple random sample of the same size. *Worst* is the case with the largest E, in
part by chance where several are close. *Covers* is the least share, over the cases, of 95 % intervals that contain the
truth, in percent. The number after ± is one standard error.""",
    ),
    "numbers": Document(
        "Other numbers than the accuracy",
        ("number_tables.py",),
        """\
F1 and recall of class 1, the mean F1 over classes, the accuracy, and the accuracy of slices: three numbers for each
number of labels. First, the root mean squared error of the estimate. Second, the share of 95 % intervals that contain
the truth, in percent. Third, the width of the intervals over that of a normal interval with this error, so that 1 is as
narrow as a normal distribution allows. For slices, error and width are means over the slices, and the share is the
least of a slice. `sawade` to `two-phase` are published methods, each for the numbers that its paper is about
(`opacc_ray/study/peers`). The cases are tables of predictions that others have published
(`benchmarks/public_tables.py`).

What more repetitions say, and what falls short of its aim:

- Tweets, F1 with 1,000 labels in four rounds: the interval covers in 94.7 % of 1,000 repetitions (95.7 % in one
  round).
- Restaurant, abt buy and dblp acm, F1 with 200, 500, 1,000 and 2,000 labels: the error of `neyman` in four rounds is
  below that of OASIS in each of twelve cells (150 and 180 repetitions). Both were looked at while the estimate was
  chosen.
- The interval there allows for all matches that may hide, whatever the confidence is worth, so it is 1.3 to 29 times
  as wide as its error. The aim was 1.3. The one that trusts the confidence is 6 matches wide on restaurant and 1 on
  dblp acm, with 1,000 labels, and the errors are .4 and .02 of a match. The aim was 1.5 times the error: less than a
  match.
- With shuffled confidence and 1,000 labels, the squared error of F1 is .54 (abt buy), .41 (dblp acm) and 1.4 times
  (restaurant) that of `srs` in the table; .76 times on tweets with 200. The aim was 1.21. Without the median it would
  be 4.8 on restaurant and .34 on abt buy.
- CIFAR-10, 400 labels: intervals of classes by prediction are .173 wide on average, and .165 was the aim. A normal
  interval with the error of the estimates would be .159. By truth it is .165.
- Slices of the employment data by sex, 400 labels: .84 times the width of random labels (40 repetitions), and .75 was
  the aim. The bound of Godambe and Joshi is .82.
- Of planted slices (5 % of the pool, 20 points worse), 60 % are found with 400 labels, and 80 % was the aim.""",
    ),
    "goals": Document(
        "Rounds until the interval of any number is ±W",
        ("until_numbers.py",),
        """\
Labels that `opacc next --until "NUMBER ±W"` takes by `neyman`, from a first round of 50 labels, drawn to serve the
number. *Forecast* is what `opacc budget` predicts before any label. An *error* is a final interval that excludes the
truth; 5 % are allowed. Of slices and classes it is the one with the widest interval, which decides. *Other* counts the
same errors for the accuracy of the pool, stated at the same stop. *Bias* is the mean of value minus truth at the stop,
in standard errors.""",
    ),
    "gap": Document(
        "Where neyman loses to its bound",
        ("bound_gap.py",),
        """\
The variance of the estimate given the designs of the four rounds drawn, over that of a simple random sample of the
same size: as it is, and with a failure model that has seen all outcomes, as in the *bound*. That model replaces the
predictions p of the estimate, the inclusion probabilities π of every round, or both.""",
    ),
    "judges": Document(
        "Judges",
        ("judges.py",),
        """\
LLMBar (Z. Zeng et al., ICLR 2024): 419 instructions with two outputs, of which people say which one is better. Audited
are 7,542 preferences of ChatGPT-0301 and PaLM 2. The judges are GPT-4 and LLaMA 2, by their own preferences: a score of
1 if a judge prefers the same output in both orders, 0.5 in one. *Width*: the mean of 95 % intervals. *Covers*: the
share of them that contain the truth, in percent. *E*: the mean squared error over that of a simple random sample of the
same size. Methods of others (`opacc_ray/study/peers`) get the judge's score as confidence, of several judges the mean;
*multi-ppi++* is PPI++ with a least-squares weight for each judge. `neyman` draws four rounds. *Partly*: 2,000 answers
drawn at random are judged. *Part alone*: such a part, drawn anew each time, is audited as a pool with `sample_of`, for
all answers. *Useless*: scores in random order.

The second table asks whether intervals could be a tenth narrower than the *narrowest valid* one, of the other method
that covers in 94 % or more with the least width. *Bound* is an oracle. It knows the share of right answers among
those that the judges score alike, draws by it, and knows its own error. No unbiased design has a smaller error
(Godambe and Joshi). *At 94 %*: the intervals of `neyman` scaled until they cover in exactly 94 %, over *valid*, with
a standard error of 0.05: what a sharper interval for the same estimates could give.

So a tenth is out of reach in 11 of the 15 cells: there the oracle itself has more than 0.9. With one judge and 50
labels `neyman` is narrower by more than a quarter, because others do not cover. In three ways the oracle has 0.85 to
0.87. The error of `neyman` is 5 to 10 % larger than the oracle's, and scaled to 94 % its intervals would still have
more than 0.9 of the width.""",
    ),
    "clusters": Document(
        "Clusters",
        ("clusters.py",),
        """\
A pool is a random sample of 20 or 100 videos of 50 frames on average. In each video the model fails with a rate of its
own: the rates are nearly *even*, *uneven* (a mean of 1 in 6, sometimes 1 in 2), or high in *few bad* ones. *Pool*: the
share of the 95 % intervals for the pool that contain the mean accuracy of videos to come, in percent. *More*: the same
of the intervals with `sample_of`. *Width*: the mean width of the latter over that of a normal interval with the same
error. `neyman` draws four rounds.""",
    ),
    "nearer": Document(
        "Trials that bring neyman nearer to its bound",
        ("nearer.py",),
        """\
E is the mean squared error of the accuracy over that of a simple random sample of the same size, *cover* the share of
95 % intervals that contain the truth, in percent, and ± one standard error of the difference of E, with the same
random numbers. *Neighbours*: the share of the 20 nearest examples in the hidden layer that the model puts in another
class is one more signal of the failure model, with an expert of its own. *Half*: the estimate moves by at most half
towards the prediction of the failure model, by so much as the correction is within its noise. Neither is part of
`opacc_ray` unless it lowers the mean E by 6 % and no case is worse by more than its error.""",
    ),
    "prices": Document(
        "What a price buys and costs",
        ("prices.py",),
        """\
`neyman` with other prices than the default: the variance of the estimate given the designs that were drawn, over that
of a simple random sample of the same size; the mean over the cases, and the case where it is largest. Cases as they
are, with outcomes or the confidence in random order, and with the confidence reversed.""",
    ),
    "ces": Document(
        "CES: objectives and settings",
        ("ces_objectives.py",),
        """\
E is the mean squared error of the estimate over that of a simple random sample of the same size, in brackets the bias
in standard deviations of the latter.""",
    ),
    "papers": Document(
        "The papers' tables and figures",
        ("papers.py",),
        """\
Every table and figure with results of the four papers. *Study* names the arguments of `opacc study` that make it
(`studies` in `benchmarks/papers.py`; most are `--as PAPER`). The study writes the whole table or figure; *ours* is the
part that a line can hold. Subjects are those of the papers where their authors published them, else the nearest.

Second table: what the measures of the fourth paper rank, on two real models of Fashion-MNIST. Spearman's correlation
with a 95 % bootstrap interval of a measure with the fall of the accuracy over 21 drifted pools, with the failures of
ten predicted classes, and of PBC with what is taken for what, over 90 pairs.""",
    ),
    "deepest": Document(
        "DeepEST compared with its paper",
        ("deepest_table2.py",),
        """\
Failures found with 200 tests, ours / published in Table II of the paper, on the five subjects that its authors
published, and how far the mean estimate is from the truth, in standard errors of that mean. The authors' means are
over 30 repetitions; ours count as equal within 3 % or one failure.""",
    ),
    "intervals": Document(
        "Coverage of intervals",
        ("intervals_coverage.py",),
        """\
How often 95 % intervals contain the truth, and how wide they are: for the accuracy of every class, the difference of
two models, a mean cost, confidence sequences (at every interim analysis) and replicates. *Two rounds* have the
intervals of their designs; *as of any kind* is the interval of `opacc_ray/estimators/rounds.py` alone. *Mostly wrong*
is a model that is right where this one is wrong. *Rare losses* are scores of which 2 %, anywhere, are 0, and the
others nearly 1. The second table has estimates that are assisted by the model's confidence in the whole pool, or by
outcomes of which 15 % are reversed: without assistance / with strength 1 / tuned. E and bias are relative to a simple
random sample of the same size.""",
    ),
    "coverage": Document(
        "Coverage and width of intervals, by level",
        ("coverage_grid.py",),
        """\
How often the interval of each level contains the truth, in percent, and how wide it is: half of the 95 % interval over
1.96 root mean squared errors of the estimate, so that 1 is as narrow as a normal distribution allows. *E* is the mean
squared error over the variance of a simple random sample of the same size, *failures met* the mean number among the
labels. Pools are simulated, with failures as the confidence predicts (*calibrated*), or anywhere (*silent*).""",
    ),
    "models": Document(
        "Several models by one set of labels",
        ("many_models.py",),
        """\
Models that answer the same items, audited together. *E* is the mean squared error of a model's accuracy over that of a
simple random sample of the same size; *own labels*: the same where each model has all labels to itself; *of
differences*: that of the difference of two models by the same sample. *Covers*: the share of 95 % intervals of an
accuracy that contain the truth. *All differences*: the share of audits in which the intervals of all differences do.
Both are in percent. *Width*: half of such an interval over 1.96 standard deviations of the difference by a simple
random sample. *Best chosen*: how often the best model has the highest estimate, in percent. *P(best)*: the mean
probability stated for it. Pairs are audited with the number of other models that got an item wrong as `prior`. Where
all models are audited at once, only labels inform the draw, and there are a fifth as many repetitions.""",
    ),
    "until": Document(
        "Rounds until the interval is ±W",
        ("until.py",),
        """\
Labels that `opacc next --until ±W` takes, from a first round of 30 labels, compared with a number planned in advance:
one at which half of the ordinary 95 % intervals are ±W or narrower (in one round; `neyman` in four). *Overshoot* is
the median of labels over that number, minus one. An *error* is a final interval that excludes the truth; 5 % are
allowed. The second table summarises each method. *From 100 planned* leaves out goals that 100 labels reach, where the
first round and the smallest further one take most of the labels.

The third table tests the stopping rule alone, on counts with exact intervals: labels as a multiple of those planned.
*Plain* uses all of α at every interim analysis, and no caution where few failures are met. *Spent* shares α between
the analyses, so that the interval holds for any reason to stop: four fifths at the planned last analysis, half of the
rest at each further one, with the correlation of successive analyses.""",
    ),
    "characterize": Document(
        "What the measures of a data set predict",
        ("characterize_study.py",),
        """\
EP, CP, BC, PBC and the shift with the defaults of `opacc characterize`. First table: median over classes (PBC: pairs)
with the least and the largest; half of the digits and 20,000 images of Fashion-MNIST are training data and reference.

Second table: Spearman's rank correlation between a measure and the drop of accuracy over 21 pools of 4,000 test images
of Fashion-MNIST: one as it is, and darkness, noise, occlusion, blur and other class shares in four strengths each;
*images only* is without the class shares. In brackets its 95 % bootstrap interval over the pools. Measures are taken
without any label, against the reference; those below the fifth row are in common use.

Third table: the same correlation between a measure of predicted classes and their share of failures, ten classes a
case, and between pairs near a boundary and pairs that are confused, 90 a case. Fourth: mean squared error with 200
labels over that of a simple random sample, and the bias in its standard deviations; `neyman` in one round. Fifth:
vectors with given shares near centroid and boundary, made from labelled test images; *violations* are the moves that
break a rule, in percent of all five.""",
    ),
    "characterize_scale": Document(
        "EP, CP, BC and PBC of ten million examples",
        ("characterize_scale.py",),
        """\
A hidden layer of 64 neurons, 10 classes, files of 50,000 examples on a local disk. *Measure* includes reading the
features and both passes over them. *Driver* is the peak memory of the driver without its actors. Equal *digests* mean
equal numbers, bit for bit.""",
    ),
    "watch": Document(
        "Watching a model over its life",
        ("watch.py",),
        """\
Lives of the employment model: 260 weeks, each with some labels of the week. *False alarms* are those of lives in
which nothing changes, at the rate .05 and without tolerance: the reference year is known, or 1,000 labels of it are.
In the other columns the accuracy drops by 5 points in week 14 or 130, with a tolerance of 1 point. *Delay* is the
mean number of weeks until the alarm, of opacc and of AsymptoticPPRM of GLIDE, which watches the running mean of all
weeks. Both know the limit and get as many labels. With `25 to 200` a week has 200 labels while bets on a drop are
winning, else 25. Both use the predicted failures of the 1,000 examples of a week. Stakes and beginnings of the bets
were chosen on lives of this kind, so the delays favour opacc. They hold for a known reference. The uncertainty of one
that is estimated from 1,000 labels delays the alarm; its false alarms were counted in 100 lives.

Delays were counted again at 50 labels a week from week 14, at three other seeds, in 6,000 lives of opacc and 1,200 of
the peer. They are 20.2 and 29.9 weeks: a ratio of .674, with a standard error of .010. With 1,000 labels as the
reference, opacc raised the alarm in 208 of 600 such lives within 260 weeks. So take a reference with more labels where
a drop by 5 points matters.""",
    ),
    "throughput": Document(
        "Throughput compared with a bare loop and with Ray Data",
        ("throughput.py", "--ray-data"),
        """\
Images from a real S3 server on the same machine through one actor, compared with a loop without Ray and this package,
which reads, decodes and computes the same with the same threads and writes nothing; and PNGs in a folder compared with
Ray Data, whole command against whole command. *Start-up* lasts until the end of the first batch. Images per second are
counted from there to the end of the last write.""",
    ),
    "chaos": Document(
        "Audits that are disturbed",
        ("disturbed_audits.py",),
        """\
Audits on a Ray cluster of three nodes with an S3 server behind a proxy that fails (`tests/chaos`). The seed decides
what happens to each audit, and when. It is restarted until it is done, and compared with an undisturbed one byte by
byte. *Too late* counts disturbances that came after the end.""",
    ),
    "speed": Document(
        "Speed",
        ("bench.py",),
        """\
The fast paths compared with plain transcriptions of the formulas, in one process, which checks that the two agree.
Times are medians of 5 calls after one that compiles. Memory is the peak that a call allocates in addition to its
input. Machines are noisy: compare ratios.""",
    ),
    "gpu": Document(
        "On a GPU",
        ("gpu.py",),
        """\
How much features of a GPU differ from those of a CPU, images a second of one actor and of a bare torch loop on the
same bytes in memory, and the time of the distances of surprise (`dsa`). Then whole commands on a folder of JPEGs of
224×224, which ResNet-18 reads on one GPU: `opacc run`, torch's DataLoader with a process for each core, and Ray Data.
*Between shards* counts from the first shard that is written to the last, without start-up. `opacc run` also writes
the features. The transform of an actor is called by one thread, so several actors that share the GPU read faster:
`extract.gpus_per_actor: 0.25`. However many actors there are, and whether one is killed, the files of features must
be the same, byte for byte.""",
    ),
    "driver": Document(
        "Memory and time of the driver for a draw",
        ("driver_memory.py",),
        """\
Drawing 200 examples from pools whose features are held by two actors on the same machine: the peak memory of the
driver in megabytes, seconds until the actors hold what the method reads (once), and seconds of the draw. Libraries
and Ray take the memory held before, and more where a method compiles: an estimate of 100,000 examples takes 388 MB in
all, of which 181 MB are code of libraries. At 10⁷ examples 192 MB are Ray's shared memory. So an aim of 400 MB at 10⁷
examples leaves nothing for arrays: signals take 190 MB, and four columns of float64 80 MB each. Labels do not change
these numbers, and the number of actors does not change what is drawn. *estimate* is no draw, but all numbers of a
labelled draw by `neyman`: the accuracy, 100 classes by prediction and by truth, macro F1, and 40 slices.""",
    ),
    "stress": Document(
        "A stress suite from generated vectors",
        ("stress_suite.py",),
        """\
A LeNet-5 on Fashion-MNIST, cut at a layer by `opacc generate --layer --suite 200`: half of the vectors near
boundaries, half near centroids, from 6,000 of the 10,000 test images. *Agreement* is the share of these images for
which the rest of the network, given the image's map and another image as input, predicts what the model predicts. A
vector is right if it is predicted as the class of its source example and its move keeps the rules. A stronger
network, trained on sharp and on blurred images, plays the annotator of the suite. It *confirms* an image if it sees
the class of the source example. The accuracy on the suite is that of the LeNet-5 by the annotator's labels.""",
    ),
    "listing": Document(
        "Planning pools of many objects",
        ("listing.py",),
        """\
Planning a pool of images, of Parquet files, and of both below one prefix, from an S3 server in memory on the same
machine. *Server*: a bare loop over the same requests, pages of 1,000 objects one after another and the ends of 16 files
at a time, which parses nothing. The server has a core of its own, and the fastest of three runs counts. *Of CPU* are
seconds of the process that plans, start-up of libraries included.""",
    ),
    "fashion": Document(
        "A job on 10,000 images",
        ("fashion_job.py",),
        """\
The audit job on the test images of Fashion-MNIST as PNG files in a real S3 server on the same machine, compared with a
plain torch loop over the same arrays in memory; and the estimates from 100 labels, seed 1.""",
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


def rewrite_texts(root: Path = ROOT) -> None:
    """Give every document its present title and text; command, stamp and numbers stay."""
    for name in DOCUMENTS:
        path = path_of(name, root)
        if path.exists():
            text = path.read_text()
            _, command, stamp = text.split("\n\n")[:3]
            path.write_text(render(name, command.strip(), stamp, blocks(text)[name]))


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
