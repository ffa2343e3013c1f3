"""Check a pack with Python, NumPy and SciPy alone: python verify.py PACK.zip [PUBLIC_KEY.pem].

It compares every file with the log and the log with the signatures, and recomputes every number that the estimates
state, by pack_statement.py. What is stated and not recomputed is listed, and so are files that nothing covers.
"""

import base64
import hashlib
import json
import math
import re
import sys
import zipfile
import zlib
from numbers import Number
from pathlib import Path
from types import EllipsisType

sys.path.insert(0, str(Path(__file__).parent))
try:
    from pack_statement import document_of
except ImportError as error:
    sys.exit(f"{error}; install numpy and scipy, and keep verify.py in one folder with the other files of its archive")

wrong: list[str] = []
covered: set[str] = set()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def check(holds, text):
    if not holds:
        wrong.append(text)


# -- ed25519 (RFC 8032, 5.1.7): enough to verify ---------------------------------------------------------------
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    e, f = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    g, h = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    return (f - e) * (h - g) % P, (h + g) * (f + e) % P, (h - g) * (h + g) % P, (f - e) * (f + e) % P


def times(s, a):
    total = (0, 1, 1, 0)
    for bit in bin(s)[2:]:
        total = add(total, total)
        total = add(total, a) if bit == "1" else total
    return total


def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    assert (x * x - xx) % P == 0, "no point of the curve"
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed(key, message, sig):
    s = int.from_bytes(sig[32:], "little")
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + message).digest(), "little") % L
    a, b = times(s, BASE), add(point(sig[:32]), times(h, point(key)))
    return len(sig) == 64 and s < L and (a[0] * b[2] - b[0] * a[2]) % P == 0 == (a[1] * b[2] - b[1] * a[2]) % P


# -- log, files, signatures -----------------------------------------------------------------------------------
def read_log(files):
    """Check the chain of the log and every file that it names; returns its entries and the digest of each."""
    names, digests, entries = sorted(name for name in files if name.startswith("log/")), [], []
    for number, name in enumerate(names, start=1):
        entry = json.loads(files[name])
        check(entry["number"] == number and entry["previous"] == (digests or [None])[-1], f"{name} breaks the chain")
        digests.append(sha(files[name])), entries.append(entry)
        for key, digest in entry["files"].items():
            check(key in files and sha(files[key]).startswith(digest), f"{key} is not the file of {name}")
        covered.update((name, *entry["files"]))
    return entries, digests


def read_signatures(files, digests, key):
    """Check all signatures by a public key (32 bytes); returns how many hold."""
    num = 0
    for name in (name for name in files if name.startswith("signatures/")):
        envelope = json.loads(files[name])
        kind, body = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"])
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)
        sigs = [base64.b64decode(item["sig"]) for item in envelope["signatures"] if item["keyid"] == sha(key)]
        if sigs and signed(key, message, sigs[0]):
            statement, num = json.loads(body), num + 1
            subjects = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
            entries = statement["predicate"]["entries"]
            check(digests[entries - 1 : entries] == [subjects["log"]], f"{name} signs another log")
            for own in subjects.keys() & files.keys():
                covered.add(own)
                check(sha(files[own]) == subjects[own], f"{own} is not the one of {name}")
    check(num, "no signature by this key")
    return num


# -- numbers --------------------------------------------------------------------------------------------------
FACTS = ("excluded", "missing", "unsure", "given_up", "clipped", "objects", "goal", "costs", "budget", "round")
"""What was asked, and what the run counted: not recomputed."""


def compare(stated, found, path, level, rest):
    """Yield each number with its path, as recomputed, and what it is off; ``rest`` collects those not recomputed."""
    if isinstance(stated, dict | list) and isinstance(found, dict | list | EllipsisType):
        for key in stated if isinstance(stated, dict) else range(len(stated)):
            there = found is not ... and (key in found if isinstance(found, dict) else key < len(found))
            inner = level if key in ("level", "level_together") else found[key] if there else ...
            if key not in FACTS:
                yield from compare(stated[key], inner, f"{path}{key}/", level, rest)
    elif found is ...:
        rest += [path[:-1]] * (isinstance(stated, int | float) and not isinstance(stated, bool))
    elif isinstance(stated, int | float) and isinstance(found, Number):
        yield path[:-1], stated, found, abs(stated - found)
    else:
        yield path[:-1], stated, found, 0.0 if stated is found is None else math.inf


def by_derivatives(path, own, document):
    """Whether a number rests on numerical derivatives: averages, and metrics that are widened for label noise."""
    top, name = (*path.split("/"), "")[:2]
    tables = "macro_" in document["by_slice"][int(name)]["metric"] if top == "by_slice" else "macro_" in name
    return tables or (top == "metrics" and "opinions" in own)


def check_draw(files, entries, own, item, name):
    """Check that a round is what the log says that was drawn, with its probabilities."""
    mine = [entry for entry in entries if (entry["track"], entry["round"]) == (own["track"], item["round"])]
    keys = [key for entry in mine for key in entry["files"] if key.endswith("/selection.json")]
    drawn, at, same = json.loads(files[keys[-1]]) if keys else {}, item["draws"], bool(keys)
    for key, value in ({"index": item["index"]} | item["design"]).items():
        whole = drawn.get("index") if key == "index" else drawn.get("design", {}).get(key)
        part = [whole[k] for k in at] if isinstance(whole, list) and max(at) < len(whole) else len(at)
        fewer = key == "labelled_before" and set(value) <= set(whole)  # some labels are gone since
        same = same and (key == "designs" or fewer or value in (whole, part))
    check(same, f"{name}: round {item['round']} is not as the log has it: examples, or their probabilities")


def recompute(files, entries, name):
    """Recompute what one track states, and name the numbers that are stated only."""
    own = json.loads(files[name])
    document, rest = json.loads(files[own["estimate"]]), []
    of_track = (entry for entry in entries if entry["track"] == own["track"])
    made = [entry for entry in of_track if "opacc-stated/1" in [item["format"] for item in entry["content"]]]
    check(made and own["estimate"] in made[-1]["files"], f"{name} is not about the newest estimate of its track")
    rows = list(compare(document, document_of(own, document), "", document["by_design"]["level"], rest))
    for path, stated, found, gap in rows:
        check(
            gap <= (1e-9 if by_derivatives(path, own, document) else 1e-12),
            f"{name}: {path} is {found} recomputed, and {stated} stated",
        )
    for item in own["rounds"]:
        check_draw(files, entries, own, item, name)
        for answer, outcome in zip(item["answers"], item["outcome"], strict=True):
            if own["exact"]:
                check((answer[1] == answer[2]) == (outcome == 1), f"{name}: outcome of {answer[0]}")
    gap = max(row[3] for row in rows)
    print(f"{name}: accuracy {document['value']:.6f}, and {len(rows)} numbers recomputed within {gap:.1e}")
    print(f"  taken as stated: {', '.join(FACTS)}")
    rest += [f"{len(made) - 1} earlier estimates of the log"] * (len(made) > 1)
    print("".join(f"  stated, not recomputed: {what}\n" for what in rest), end="")


# -- the pack -------------------------------------------------------------------------------------------------
def give_up(text):
    print(text)
    sys.exit(2)


def read_pack(path):
    """Return the files of a pack by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        usage = "give the path of a whole one: python verify.py PACK.zip [PUBLIC_KEY.pem]"
        give_up(f"{path} is no pack that can be read ({error}); {usage}")


def read_key(path):
    """Return a public key: 32 bytes."""
    try:
        text = Path(path).read_text()
        body = base64.b64decode(re.sub(r"-----.*?-----|\s", "", text))
    except (OSError, ValueError) as error:
        give_up(f"the key {path} cannot be read: {error}")
    if "PRIVATE" in text or len(body) < 32:
        give_up(f"{path} is no public key: give what `openssl pkey -in KEY.pem -pubout` prints")
    return body[-32:]


def recompute_all(files, entries):
    """Recompute what each track states; returns whether any does."""
    names = sorted(name for name in files if name.startswith("numbers/"))
    for name in names:
        recompute(files, entries, name)
    covered.update(names)
    stated = {entry["track"] for entry in entries if "opacc-stated/1" in [item["format"] for item in entry["content"]]}
    for track in stated - {json.loads(files[name])["track"] for name in names}:
        check(False, f"numbers/{track or 'main'}.json is missing: the log has an estimate")
    return bool(stated)


def uncovered(files):
    """Return the files that neither the log nor a checked signature has, and that are not this verifier itself."""
    here = {"verify.py": Path(__file__)} | {own.name: own for own in Path(__file__).parent.glob("pack_*.py")}
    mine = (name for name in files if name in here and files[name] == here[name].read_bytes())
    return sorted(files.keys() - covered - set(mine))


def main(arguments):
    files = read_pack(next((name for name in arguments if name.endswith(".zip")), "evidence.zip"))
    entries, digests = read_log(files)
    print(f"log: {len(digests)} entries, head {(digests or ['none'])[-1]}")
    keys, num = [name for name in arguments if name.endswith(".pem")], 0
    for path in keys:
        held = read_signatures(files, digests, read_key(path))
        num += held
        print(f"{held} signatures by {path}")
    unchecked = sum(name.startswith("signatures/") for name in files) - num
    if unchecked > 0:
        print(f"{unchecked} of the signatures not checked: {'they are by other keys' if keys else 'no key is given'}")
    if not recompute_all(files, entries):
        print("no number is stated: the log has no estimate")
    rest = uncovered(files)
    if rest:
        print(f"covered by neither the log nor a signature that was checked: {', '.join(rest)}")
    print("\n".join(wrong) or ("everything else agrees" if rest else "everything agrees"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
