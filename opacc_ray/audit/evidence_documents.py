"""Documents of evidence: what was promised before the first label, who signed a run, and what a pack holds."""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, SealedDocument, format_field
from opacc_ray.runs.run_documents import Seal


class Signed(SealedDocument):
    """The run was signed as it was after the entry before this one; the file of this entry is the envelope."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-signed/1"] = format_field("opacc-signed/1")
    by: str = Field(description="who signed it")
    role: str = Field(description="in which role")
    key: str = Field(description="SHA-256 of the public key")


class SealState(Document):
    """A seal, and how the newest estimate of the track deviates from it."""

    format: Literal["opacc-sealed/1"] = format_field("opacc-sealed/1")
    run: str = Field(description="URI of the run")
    track: str | None = Field(description="track that is sealed; null for the first track")
    at: str = Field(description="time of the seal: ISO 8601, UTC")
    seal: Seal = Field(description="what was promised")
    deviations: list[str] = Field(description="how the newest estimate deviates, in sentences")


class Signature(Document):
    """A signature of a run."""

    format: Literal["opacc-signature/1"] = format_field("opacc-signature/1")
    run: str = Field(description="URI of the run")
    by: str = Field(description="who signed it")
    role: str = Field(description="in which role")
    at: str = Field(description="time of the signature: ISO 8601, UTC")
    key: str = Field(description="SHA-256 of the public key")
    head: str = Field(description="digest of the newest entry of the log that is signed")
    entries: int = Field(ge=1, description="number of entries that are signed")
    file: str = Field(description="URI of the envelope")


class PackedNumber(Part):
    """An estimate in a pack."""

    track: str | None = Field(description="track; null for the first track")
    estimate: str = Field(description="place of the estimate in the pack")


class EvidencePack(Document):
    """An archive with which others check a run without opacc."""

    format: Literal["opacc-pack/1"] = format_field("opacc-pack/1")
    run: str = Field(description="URI of the run")
    file: str = Field(description="URI of the archive")
    sha256: str = Field(description="its digest")
    files: int = Field(ge=1, description="number of files in it")
    head: str = Field(description="digest of the newest entry of the log")
    signatures: int = Field(ge=0, description="number of signatures")
    numbers: list[PackedNumber] = Field(description="estimates that it holds")
