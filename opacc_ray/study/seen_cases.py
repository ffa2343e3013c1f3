"""Cases that a study makes: drifted copies of cases, and images as the models of audits see them.

    OUTPUT/cases/NAME.npz                        without a drift
    OUTPUT/cases/NAME-dark-0.5.npz               each drift
    OUTPUT/cases/NAME-SPEC-dark-0.5.npz          of each of several models

A model runs in this process. Its cases hold hidden, output, prediction and confidence, and every array of the images'
file but the images.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.inference import run_here
from opacc_ray.lake.examples import Example
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec import Spec, load_spec
from opacc_ray.study.cases import files_of
from opacc_ray.study.drift import IMAGE_DRIFTS, Arrays, drift_arrays, parse_drift, read_arrays, write_arrays
from opacc_ray.study.study_spec import CaseSpec, stem_of

FOLDER = "cases"


class Prepared(NamedTuple):
    """A case of a study."""

    case: CaseSpec
    base: str | None = None  # name of the case without a drift; None: it was not made here
    drift: str | None = None  # KIND:STRENGTH; None: none


def prepared(
    cases: Sequence[CaseSpec], models: Sequence[str], drifts: Sequence[str], seed: int, store: Store
) -> list[Prepared]:
    """Return the cases of a study; those that models see or that drift are written below ``store``.

    Raises SpecError for a drift that is none, or of images without a model; DataError for a file that has no images.
    """
    if not models and not drifts:
        return [Prepared(case) for case in cases]
    kinds = [(text, *parse_drift(text)) for text in drifts]
    images = next((text for text, kind, _ in kinds if kind in IMAGE_DRIFTS), None)
    if images and not models:
        raise SpecError(f"drift {images} is one of images, which a model must see; add --model SPEC.yaml")
    specs = {stem_of(uri): load_spec(uri) for uri in models}
    if len(specs) < len(models):
        raise SpecError(f"two of the specs {', '.join(models)} have one name; rename one of the files")
    found = []
    for case in cases:
        uris = files_of(case.path)
        for uri in uris:
            name = case.name_of(uri, is_alone=len(uris) == 1)
            found += list(_made(case, uri, name, specs, kinds, seed, store))
    return found


def see_case(uri: str, spec: Spec, model: str, place: str) -> str:
    """Write a file of images as a model sees it to ``place``, and return that."""
    write_arrays(place, _seen(read_arrays(uri), spec, uri, model))
    return place


def _made(
    case: CaseSpec,
    uri: str,
    name: str,
    specs: dict[str, Spec],
    drifts: Sequence[tuple[str, str, float]],
    seed: int,
    store: Store,
) -> Iterator[Prepared]:
    arrays = read_arrays(uri)
    for text, kind, strength in [("", "", 0.0), *drifts]:
        drifted = drift_arrays(arrays, kind, strength, seed, uri) if text else arrays
        ending = f"-{kind}-{strength:g}" if text else ""
        for model, spec in specs.items() or [("", None)]:
            base = f"{name}-{model}" if len(specs) > 1 else name
            content = drifted if spec is None else _seen(drifted, spec, uri, model)
            place = store.uri_of(f"{FOLDER}/{base}{ending}.npz")
            write_arrays(place, content)
            yield Prepared(case.model_copy(update={"path": place, "name": f"{base}{ending}"}), base, text or None)


def _seen(arrays: Arrays, spec: Spec, uri: str, model: str) -> Arrays:
    if "x" not in arrays:
        raise DataError(f"{uri} has no array 'x' of images, only {', '.join(arrays)}; a model needs them")
    examples = [Example(str(row), f"{uri}#row={row}", array) for row, array in enumerate(arrays["x"])]
    columns = dict(run_here(spec, examples, model))
    classes, label = spec.model.classes, arrays.get("label")
    if classes and label is not None and label.dtype.kind not in "biuf":  # both by name
        columns["prediction"] = np.array(classes)[columns["prediction"]]
    return {key: values for key, values in arrays.items() if key != "x"} | columns
