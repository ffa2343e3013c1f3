"""Check a pack with Python, NumPy and SciPy alone: python verify.py PACK.zip [PUBLIC_KEY.pem].

It compares every file with the log and the log with the signatures, and recomputes what the estimates state, by
pack_numbers.py and pack_designs.py. What is stated and not recomputed is listed.
"""

import base64
import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
try:
    from pack_numbers import accuracy, others
except ImportError as error:
    sys.exit(f"{error}; install numpy and scipy, and keep verify.py in one folder with the other files of its archive")

wrong: list[str] = []


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
    """Check the chain of the log and every file that it names; returns the digest of each entry."""
    names, digests = sorted(name for name in files if name.startswith("log/")), []
    for number, name in enumerate(names, start=1):
        entry = json.loads(files[name])
        check(entry["number"] == number and entry["previous"] == (digests or [None])[-1], f"{name} breaks the chain")
        digests.append(sha(files[name]))
        for key, digest in entry["files"].items():
            check(key in files and sha(files[key]).startswith(digest), f"{key} is not the file of {name}")
    return digests


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
                check(sha(files[own]) == subjects[own], f"{own} is not the one of {name}")
    check(num, "no signature by this key")
    return num


# -- numbers --------------------------------------------------------------------------------------------------
def recompute(files, name):
    """Recompute what one track states, and name the numbers that are stated only."""
    own = json.loads(files[name])
    document = json.loads(files[own["estimate"]])
    found = [("accuracy by design", accuracy(own, document["by_design"]["level"]), document["by_design"])]
    more, rest = others(own, document)
    gaps = [0.0]
    for what, numbers, stated in found + more:
        gap = max(abs(stated[field] - float(value)) for field, value in numbers.items())
        check(gap <= 1e-12, f"{name}: {what} is {numbers} recomputed, and {[stated[key] for key in numbers]} stated")
        gaps.append(gap)
    for item in own["rounds"]:
        for answer, outcome in zip(item["answers"], item["outcome"], strict=True):
            if own["measure"] == "accuracy" and own["exact"]:
                check((answer[1] == answer[2]) == (outcome == 1), f"{name}: outcome of {answer[0]}")
    print(f"{name}: accuracy {document['by_design']['value']:.6f} and {len(more)} more numbers recomputed, each with")
    print(f"  standard error and interval, within {max(gaps):.1e}")
    print("".join(f"  stated, not recomputed: {what}\n" for what in rest), end="")


def main(arguments):
    pack = next((name for name in arguments if name.endswith(".zip")), "evidence.zip")
    if not zipfile.is_zipfile(pack):
        print(f"{pack} is no pack that can be read; give its path: python verify.py PACK.zip [PUBLIC_KEY.pem]")
        return 2
    with zipfile.ZipFile(pack) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    digests = read_log(files)
    print(f"log: {len(digests)} entries, head {digests[-1]}")
    for path in (name for name in arguments if name.endswith(".pem")):
        body = re.sub(r"-----.*?-----|\s", "", Path(path).read_text())
        print(f"{read_signatures(files, digests, base64.b64decode(body)[-32:])} signatures by {path}")
    for name in sorted(name for name in files if name.startswith("numbers/")):
        recompute(files, name)
    print("\n".join(wrong) or "everything agrees")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
