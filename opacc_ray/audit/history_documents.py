"""What a run keeps of its history: ``history/history.json``."""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Part, SealedDocument


class HistorySource(Part):
    """Something that was known before the first label."""

    kind: Literal["reference", "audit", "prior"] = Field(
        description="labels of the reference, labels of an earlier audit, or a column of the pool"
    )
    uri: str = Field(description="where it comes from")
    examples: int = Field(ge=0, description="labelled examples that were taken, or values of the column")
    column: str | None = Field(description="name of the column; null of labels")


class KeptFile(Part):
    """A file of the history."""

    sha256: str = Field(description="SHA-256 of its content")
    size: int = Field(ge=0, description="bytes")


class KeptHistory(SealedDocument):
    """What a run knew before its first label; it is gathered once."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-kept-history/1"] = Field(
        default="opacc-kept-history/1", description="name and version of this form"
    )
    run: str | None = Field(description="digest of the run that it was gathered for")
    folder: str = Field(pattern="^[0-9a-f]{16}$", description="where the files lie: a digest of all of them")
    files: dict[str, KeptFile] = Field(description="by name: labelled-1.parquet, prior.npy")
    sources: list[HistorySource] = Field(description="where they come from; labelled-1.parquet is of the first")
