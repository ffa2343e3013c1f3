"""What a run will take, in words."""

from opacc_ray.audit.checks import RunPlan
from opacc_ray.errors import counted


def plan(document: RunPlan) -> str:
    """What a run will take, and what that rests on."""
    pace, requests = document.pace, document.requests
    about = "about " if document.estimated else ""
    took = f"{_milliseconds(pace.reading)} to read, {_milliseconds(pace.computing)} to compute on {pace.device}"
    of = f"{about}{counted(document.examples, 'example')} in {counted(document.files, 'file')}"
    lines = [
        f"work       {counted(document.shards, 'shard')}: {of}",
        f"requests   {requests.list} lists, {requests.read} reads, {requests.write} writes",
        f"bytes      {_bytes(document.bytes_read)} read, {_bytes(document.bytes_written)} of features written",
        f"time       {_duration(3600 * document.hours)} with {document.actors} actors, start-up aside",
        f"memory     {_bytes(document.memory_actor)} an actor at most, {_bytes(document.memory_driver)} the driver",
        f"measured   {pace.examples} examples here: {took}",
    ]
    if document.left_out:
        lines.append(f"without    {', '.join(document.left_out)}, which compare with a reference")
    return "\n".join(lines)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms"


def _bytes(number: int) -> str:
    """A number of bytes, in the unit that leaves at most four digits before the point."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 10_000:
            return f"{number:.0f} {unit}"
        number = round(number / 1000)
    return f"{number} TB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
