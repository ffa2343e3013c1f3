"""Make the cases of study_tables.py numbers: tables of predictions that others have published, with labels.

    python benchmarks/make_cases.py FOLDER --numbers [--downloads FOLDER]

    restaurant, abt_buy, dblp_acm_small   pairs of records that a linear SVM calls a match, or not; 20 to 50 matches
    tweets100k                            tweets that a linear SVM calls positive, or not; half of them are
    employment                            people of Massachusetts, 2015-2017, whom a boosted model calls employed, or
                                          not; slices sex, race, age and year
    compas                                defendants whom COMPAS calls a medium or high risk; slices sex, race, age

The first four are those of N. G. Marchant and B. I. P. Rubinstein (KDD 2021; repository activeeval-experiments, MIT),
as HDF5, which h5py reads. The others are of NannyML (repository nannyml, Apache-2.0; from the American Community
Survey) and ProPublica (repository compas-analysis). Files are fetched at a fixed commit, or read from the folder of
downloads, where they have the names below, and compared with the SHA-256 digests below.

A case is FOLDER/NAME.npz with prediction and label, 0 or 1, and probability, that of class 1; pairs of records also
have hidden, the similarities of a pair. For tweets, probability is the logistic function of the score, and their 9,398
word counts are left out. For COMPAS it is (decile - ½)/10, which has the order of the score and not its meaning. Slices
are columns of text. Four codes of race with 452 people in all are joined as native.
"""

import csv
import hashlib
import io
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RAW = "https://raw.githubusercontent.com/"
MATCHERS = "ngmarchant/activeeval-experiments/212d601dc44c4917a64ab251e75f8de935ae247f/datasets/"
NANNYML = "NannyML/nannyml/4c86ee350dc541cb244f965cf555b4b2a004ae99/nannyml/datasets/data/"
PROPUBLICA = "propublica/compas-analysis/bafff5da3f2e45eca6c2d5055faad269defd135a/"

FILES = {
    "restaurant-svm.h5": (MATCHERS, "d51b17d8042aa77beece6f28a1f37e4aa31de148086befe6cac10c85b98f223c"),
    "abt-buy-svm.h5": (MATCHERS, "175742f9a4d5e6b31562e913010661972993a29a9da1e8bb6adc614462782e66"),
    "dblp-acm-svm-small.h5": (MATCHERS, "c1f9792a07984964ae53d0e2258fd378dfbbd0be6c61958b5c90066cb465856a"),
    "tweets100k-svm.h5": (MATCHERS, "02b88ef23e319ce1d65170daec55a3eb67894d5dec7f31629bae99bde4fbe819"),
    "employment_MA_reference.pq": (NANNYML, "21d0e33655666071bde9ed21bf35b24fe14c1476e3dd37a5194b827ad5a570e4"),
    "employment_MA_analysis.pq": (NANNYML, "591328bcf7e46139660f2cc6b1705a6f2f66edf2418ce2a893cf2892be3f66a7"),
    "employment_MA_analysis_target.pq": (NANNYML, "c306840f0c092bda7608a09e61e7e715ac2b7fb2d17da8062900c3ecd6fdbe30"),
    "compas-scores-two-years.csv": (PROPUBLICA, "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d"),
}
"""Name -> where it is, SHA-256."""

SEX = {"1": "male", "2": "female"}
RACE = {"1": "white", "2": "black", "6": "asian", "8": "other", "9": "two or more"} | dict.fromkeys("3457", "native")
LAST_YEAR = 2017

Columns = dict[str, Any]


def make_tables(folder: Path, downloads: Path | None) -> None:
    """Write every case."""
    for name, (make, files) in CASES.items():
        contents = [read(file, downloads) for file in files]
        np.savez_compressed(folder / f"{name}.npz", **make(*contents))
        print(folder / f"{name}.npz")


def read(name: str, downloads: Path | None) -> bytes:
    """Return a public file; ends the program if it is not the one that was published."""
    place, digest = FILES[name]
    data = (downloads / name).read_bytes() if downloads else download(f"{RAW}{place}{name}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit(f"{name} is not the file that was published: its SHA-256 is not {digest}")
    return data


def download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise SystemExit(
            f"{url} was not downloaded ({error}); get the file by hand and give --fashion, --deepest or --downloads"
        ) from None


def matcher(data: bytes) -> Columns:
    """Return the columns of a binary classifier with scores."""
    try:
        import h5py
    except ImportError:
        raise SystemExit("the matchers are HDF5: pip install h5py") from None
    with h5py.File(io.BytesIO(data)) as file:
        score, label = file["scores"][:], file["labels"][:]
        prediction = file["preds"][:] if "preds" in file else score >= 0
        probability = file["probs"][:] if "probs" in file else 1 / (1 + np.exp(-score))
        hidden = {"hidden": file["features"][:].astype(np.float32)} if file["features"].shape[1] < 100 else {}
    binary = {"prediction": prediction.astype(np.uint8), "label": label.astype(np.uint8)}
    return binary | {"probability": probability.astype(np.float32)} | hidden


def employment(reference: bytes, analysis: bytes, target: bytes) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first, later, truth = (pq.read_table(pa.BufferReader(data)).to_pandas() for data in (reference, analysis, target))
    rows: Any = [first, later.merge(truth, on="id")]
    column = {name: np.concatenate([part[name].to_numpy() for part in rows]) for name in first.columns}
    keep = column["year"] <= LAST_YEAR
    column = {name: values[keep] for name, values in column.items()}
    return {
        "prediction": column["prediction"].astype(np.uint8),
        "label": column["employed"].astype(np.uint8),
        "probability": column["predicted_probability"].astype(np.float32),
        "sex": np.array([SEX[code] for code in column["SEX"]]),
        "race": np.array([RACE[code] for code in column["RAC1P"]]),
        "age": ages(column["AGEP"]),
        "year": column["year"].astype(str),
    }


def ages(years: Any) -> Any:
    names = np.array(["under 18", "18 to 29", "30 to 49", "50 to 64", "65 and over"])
    return names[np.searchsorted([18, 30, 50, 65], years.astype(float), side="right")]


def compas(data: bytes) -> Columns:
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    decile = np.array([float(row["decile_score"]) for row in rows])
    return {
        "prediction": (decile >= 5).astype(np.uint8),
        "label": np.array([int(row["two_year_recid"]) for row in rows], dtype=np.uint8),
        "probability": ((decile - 0.5) / 10).astype(np.float32),
        **{name: np.array([row[key] for row in rows]) for name, key in COMPAS_SLICES.items()},
    }


COMPAS_SLICES = {"sex": "sex", "race": "race", "age": "age_cat"}

CASES: dict[str, tuple[Callable[..., Columns], tuple[str, ...]]] = {
    "restaurant": (matcher, ("restaurant-svm.h5",)),
    "abt_buy": (matcher, ("abt-buy-svm.h5",)),
    "dblp_acm_small": (matcher, ("dblp-acm-svm-small.h5",)),
    "tweets100k": (matcher, ("tweets100k-svm.h5",)),
    "employment": (
        employment,
        ("employment_MA_reference.pq", "employment_MA_analysis.pq", "employment_MA_analysis_target.pq"),
    ),
    "compas": (compas, ("compas-scores-two-years.csv",)),
}
"""Name of a case -> what reads its files, and their names."""
