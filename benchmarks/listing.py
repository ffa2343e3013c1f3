"""The driver's time and memory to plan pools of many objects, beyond the time that the S3 server takes.

    python benchmarks/listing.py [--objects 200000] [--files 5000] [--rows 2000] [--tries 3]
                                 [--keys 1000000] [--folders 1000] [--wait 0.05]

An S3 server in a process of its own, with pages of 1,000 objects in memory, holds images, and Parquet files of one
content. It has a core of its own, as if it were on another machine. A bare loop over the same requests, which parses
nothing, measures the server; then a new process plans the pool. Both run several times, and the fastest of each counts.
Prints a Markdown table: seconds of both, their difference, seconds of CPU of the plan, and the most memory of its
process. The last pool has many folders, and each page comes after a wait, as from a server that is far away.
"""

import argparse
import bisect
import functools
import hashlib
import http.client
import os
import re
import resource
import socketserver
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, quote, urlsplit

import markdown_table as markdown
import numpy as np
import pyarrow as pa

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.parquet_io import TAIL, encode
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import open_store

THREADS = 16  # of `in_order`, which reads the ends of files
COLUMNS = (
    "pool",
    "objects",
    "requests",
    "s of the server",
    "s of the plan",
    "s beyond the server",
    "of CPU",
    "MB at most",
)

POOLS = ("images", "parquet", "parquet among images", "images in folders")

PAGE = 1000  # objects of a page, as S3 has them

COLUMNS_READ = Columns(id="id", features=(("prediction", ("prediction",)), ("confidence", ("confidence",))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--rows", type=int, default=2_000, help="of each Parquet file")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the pool in folders")
    parser.add_argument("--folders", type=int, default=1_000)
    parser.add_argument("--wait", type=float, default=0.05, help="seconds before each page of the pool in folders")
    given = parser.parse_args()
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or [first])
    print(markdown.header(COLUMNS))
    for pool in POOLS:
        in_folders = pool == "images in folders"
        images = given.keys if in_folders else 0 if pool == "parquet" else given.objects
        files = given.files if "parquet" in pool else 0
        far = (given.folders, given.wait) if in_folders else (1, 0)
        server = [sys.executable, __file__, "serve", *map(str, (images, files, given.rows, first, *far))]
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                endpoint = process.stdout.readline().strip()
                requests, own = min(bare(endpoint, files) for _ in range(given.tries))
                kind = "parquet" if files else "images"
                planned, *more = min(plan(endpoint, kind, files or images) for _ in range(given.tries))
            finally:
                process.terminate()
        numbers = (f"{images + files:,}", f"{requests:,}", f"{own:.1f}", f"{planned:.1f}", f"{planned - own:.1f}")
        print(markdown.row((pool, *numbers, f"{more[0]:.1f}", f"{more[1]:.0f}")), flush=True)


def bare(endpoint: str, files: int) -> tuple[int, float]:
    """Requests of a plan and their seconds: all pages, one after another, and the end of each file, some at a time."""
    begun, token, pages = time.perf_counter(), "", 0
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc)
    while token is not None:
        body = _get(connection, f"/lake?list-type=2&continuation-token={token}")
        found = re.search(rb"<NextContinuationToken>(.*?)<", body[-300:])
        token, pages = found and found[1].decode(), pages + 1

    def read_ends(numbers: range) -> None:
        own = http.client.HTTPConnection(urlsplit(endpoint).netloc)
        for number in numbers:
            _get(own, f"/lake/{_key(number)}", {"Range": f"bytes=-{TAIL}"})

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read_ends, (range(first, files, THREADS) for first in range(THREADS))))
    return pages + files, time.perf_counter() - begun


def _get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> bytes:
    connection.request("GET", path, headers=headers or {})
    return connection.getresponse().read()


def plan(endpoint: str, kind: str, num_files: int) -> list[float]:
    """Seconds, seconds of CPU, and megabytes of a process that plans the pool."""
    access = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "password"}
    command = [sys.executable, __file__, "plan", kind, str(num_files)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **access}, check=False)
    if done.returncode:
        sys.exit(f"the plan failed: {done.stderr}")
    return [*map(float, done.stdout.split())]


def plan_here(kind: str, num_files: int) -> None:
    """Plan the pool and print seconds, seconds of CPU, and megabytes."""
    begun, cpu = time.perf_counter(), time.process_time()
    rules = Rules(columns=COLUMNS_READ) if kind == "parquet" else Rules()
    found = plan_shards(open_store("s3://lake/pool"), kind, 10_000, rules=rules)
    assert len(found.entries) == num_files
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(time.perf_counter() - begun, time.process_time() - cpu, memory)


# -- the server --------------------------------------------------------------------------------------------------


def serve(images: int, files: int, rows: int, core: int, folders: int, wait: float) -> None:
    """Serve a bucket on one core until the process ends; print the address."""
    os.sched_setaffinity(0, [core])
    content = _parquet(rows)
    size = len(content)
    tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
    keys = [(f"pool/images{number * folders // images:04d}/{number:07d}.jpg", 100_000, tag) for number in range(images)]
    keys = sorted(keys + [(_key(number), size, tag) for number in range(files)])

    @functools.cache
    def listed(prefix: str, delimiter: str, first: int) -> bytes:
        """A page of a prefix, or all its folders, and here all objects are in folders."""
        below = range(*(bisect.bisect(keys, (end,)) for end in (prefix, prefix + "\x7f")))
        if delimiter:
            names = {keys[number][0][: keys[number][0].find("/", len(prefix)) + 1] for number in below}
            return _page([], None, sorted(names))
        following = first + PAGE if first + PAGE < len(below) else None
        return _page([keys[number] for number in below[first : first + PAGE]], following)

    class Answers(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            while line := self.rfile.readline():
                headers = b"".join(iter(self.rfile.readline, b"\r\n"))
                query = parse_qs(urlsplit(line.split()[1].decode()).query)
                wanted = re.search(rb"(?i)\r\nrange: *bytes=(\d*)-(\d*)", b"\r\n" + headers)
                status, body = "200 OK", content
                if "list-type" in query:
                    prefix, delimiter, token = (
                        query.get(name, [""])[0] for name in ("prefix", "delimiter", "continuation-token")
                    )
                    body = listed(prefix, delimiter, int(token or 0))
                    time.sleep(wait)
                elif wanted:
                    start = int(wanted[1]) if wanted[1] else max(size - int(wanted[2]), 0)
                    stop = min(int(wanted[2]) + 1, size) if wanted[1] and wanted[2] else size
                    status = f"206 Partial Content\r\nContent-Range: bytes {start}-{stop - 1}/{size}"
                    body = content[start:stop]
                head = f'HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nETag: "{tag}"\r\n\r\n'
                self.wfile.write(head.encode() + body)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, request_queue_size = True, 100

    with Server(("127.0.0.1", 0), Answers) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


def _key(number: int) -> str:
    return f"pool/parts/day=2026-01-{number % 28 + 1:02d}/part-{number:05d}.parquet"


def _parquet(rows: int) -> bytes:
    rng = np.random.default_rng(1)
    columns = {"prediction": rng.integers(0, 10, rows), "confidence": rng.random(rows), "score": rng.random(rows)}
    return encode(pa.table({"id": [f"photo-{row:09d}" for row in range(rows)], **columns}))


def _page(keys: list[tuple[str, int, str]], following: int | None, folders: Sequence[str] = ()) -> bytes:
    """A page of a listing, as S3 writes it."""
    contents = "".join(
        f"<Contents><Key>{quote(key, safe='/')}</Key><LastModified>2026-01-31T12:00:00.000Z</LastModified>"
        f"<ETag>&quot;{tag}&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, size, tag in keys
    )
    contents += "".join(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>" for name in folders)
    more = "" if following is None else f"<NextContinuationToken>{following}</NextContinuationToken>"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>lake</Name><Prefix>pool/</Prefix><KeyCount>{len(keys)}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
        f"<EncodingType>url</EncodingType><IsTruncated>{str(following is not None).lower()}</IsTruncated>"
        f"{contents}{more}</ListBucketResult>"
    ).encode()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(*map(int, sys.argv[2:7]), float(sys.argv[7]))
    elif sys.argv[1:2] == ["plan"]:
        plan_here(sys.argv[2], int(sys.argv[3]))
    else:
        main()
