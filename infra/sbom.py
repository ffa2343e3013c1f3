"""Print the installed dependencies of opacc_ray with the extras of the image: name, version and licence, one line each.

python infra/sbom.py
"""

from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement


def main() -> None:
    found: dict[str, Distribution] = {}
    _collect(Requirement("opacc_ray[job,page,fleet]"), found)
    del found["opacc-ray"]
    for name in sorted(found):
        print(f"{name}\t{found[name].version}\t{_licence(found[name])}")


def _collect(requirement: Requirement, found: dict[str, Distribution]) -> None:
    """Add what fulfils a requirement and all that it requires; what is not installed is left out."""
    name = requirement.name.lower().replace("_", "-")
    try:
        installed = distribution(requirement.name)
    except PackageNotFoundError:
        return
    if name in found and not requirement.extras:
        return
    found[name] = installed
    extras = [{"extra": extra} for extra in ("", *requirement.extras)]
    for line in installed.requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate(extra) for extra in extras):
            _collect(needed, found)


def _licence(installed: Distribution) -> str:
    metadata = installed.metadata
    named = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    stated = metadata.get("License-Expression") or ", ".join(named) or metadata.get("License") or "not stated"
    return str(stated).splitlines()[0]


if __name__ == "__main__":
    main()
