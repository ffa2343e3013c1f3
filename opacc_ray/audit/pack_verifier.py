"""Check a pack with Python, NumPy and SciPy alone: python verify.py PACK.zip [PUBLIC_KEY.pem].

It compares every file with the log and the log with the signatures, and recomputes what the estimates state.
"""

import base64
import hashlib
import json
import math
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
from scipy import optimize, special

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
def wilson(mean, size, level):
    z = special.ndtri(0.5 + level / 2) ** 2
    centre, half = mean + z / (2 * size), math.sqrt(z * (mean * (1 - mean) / size + z / (4 * size * size)))
    return max(0.0, (centre - half) / (1 + z / size)), min(1.0, (centre + half) / (1 + z / size))


def mid_p_low(count, size, level):
    most, left = min(count / size, 1.0), max(size - count, 0.0)

    def excess(share):
        more = special.betainc(count + 1, left, share) if left else 0.0
        return (special.betainc(count, left + 1, share) + more - (1 - level)) / 2

    return optimize.brentq(excess, 0.0, most, xtol=1e-9) if excess(most) > 0 else most


def exact(successes, n, size, level):
    """Ends of the shares that neither one-sided hypergeometric test rejects."""
    lg = special.gammaln
    count = np.arange(successes, size - (n - successes) + 1)

    def at_most(k, events):  # P(X <= k)
        x = np.arange(max(0, n + events - size), k + 1)
        if len(x) == 0:
            return 0.0
        ways = lg(events + 1) - lg(x + 1) - lg(events - x + 1) + lg(size - events + 1)
        ways = ways - lg(n - x + 1) - lg(size - events - n + x + 1)
        return float(np.exp(ways - (lg(size + 1) - lg(n + 1) - lg(size - n + 1))).sum())

    tail = (1 - level) / 2
    fits = [M for M in count if at_most(n - successes, size - M) > tail and at_most(successes, M) > tail]
    return min(fits) / size, max(fits) / size


def simple_random(rounds, size, level):
    y = np.concatenate([own["outcome"] for own in rounds])
    n = len(y)
    spread = ((y - y.mean()) ** 2).sum() / (n * max(n - 1, 1)) if n > 1 else y[0] * (1 - y[0])
    low, high = exact(round(y.sum()), n, size, level)
    return y.mean(), math.sqrt(max(1 - n / size, 0) * spread), low, high


def predicted(rounds, size, level, trust, elsewhere):
    """Difference estimator of `neyman` with adjusted Wilson intervals, combined over rounds."""
    num, value, variance, known, shares = [], [], [], [], []
    effect, expected, error = [], [], []
    place = {}
    for own in rounds:
        f, d = 1 - own["outcome"], own["design"]
        n, N = len(f), d["population"]
        pi = np.array(d["inclusion_probability"]) * (n / d["num_drawn"])
        p, sums, spread = own["labelled"], own["predicted"], own["spread"]
        w, out = 1 / (N * pi), np.maximum(1 - pi, 0)
        before = [place[i] for i in d["labelled_before"]]
        known.append(sum(before) / size)
        e = (f - p) / np.sqrt(1 - own["leverage"])
        factor, z = out / (n * max(n - 1, 1)), n * w * e
        centre = factor @ z / max(factor.sum(), 1e-300)
        num.append(n), shares.append(1 - len(before) / size)
        value.append(sums / (shares[-1] * size) + w @ (f - p))
        variance.append((factor @ (z - centre) ** 2, spread / size**2))
        effect.append(w * np.sqrt(out)), expected.append(p), error.append(e)
        for i, one in zip(own["index"], f, strict=True):
            place.setdefault(i, one)
    num, shares = np.array(num, float), np.array(shares)
    after = np.maximum(shares - num / size, 0.5 / size)
    plan = num / (np.maximum(shares, 0.5 / size) * after) * np.cbrt(np.cumsum(num))
    plan /= plan.sum()
    v = np.array([own[1] for own in variance])
    inverse = (v <= 0).astype(float) if (v <= 0).any() else 1 / v
    weight = trust * inverse / inverse.sum() + (1 - trust) * plan
    share = weight @ (np.array(known) + shares * np.array(value))
    weight = weight * shares
    variance = sum(w * w * own[0] for w, own in zip(weight, variance, strict=True))
    a, p = np.concatenate([w * own for w, own in zip(weight, effect, strict=True)]), np.concatenate(expected)
    e, failures, labels = np.concatenate(error), sum(place.values()), len(place)
    degrees = max(sum(len(own) - 1 for own in effect), 1)
    widen = special.stdtrit(degrees, 0.5 + level / 2) / special.ndtri(0.5 + level / 2)
    ones = lambda x: x if x @ a > 0 else np.ones_like(x)  # noqa: E731
    q, r = ones(p) / ones(p).sum(), ones(1 - p)
    half, square, success = 0.5 * (q @ a), 0.5 * (q @ a**2), 0.5 * (r @ a) / r.sum()
    terms = (a * e) ** 2
    m = terms.sum() ** 2 / max(terms @ terms, 1e-300)

    def size_at(centre):
        def at(x):
            x = min(max(x, min(half, 0.5)), 1 - min(success, 0.5))
            return x * (1 - x)

        measured = m / (m + 1) * (variance + square) / at(centre)
        model = (1 / (m + 1)) * (a**2 @ (p * (1 - p)) + square) / at(max(centre, a @ p))
        return 1 / max(measured + model, 1e-300) / widen**2

    low, high = 0.0, 1.0
    if failures and share > 0:
        low = wilson(min(share, 1.0), size_at(share), level)[0]
        if share < 1:
            low = min(low, mid_p_low(share * size_at(share), size_at(share), level))
    if failures < labels:
        centre = max(share, 0.0) + half
        high = wilson(min(centre, 1.0), size_at(centre), level)[1]
        if not failures and p.sum() < 1:
            high = max(high, 1 - ((1 - level) / 2) ** (1 / len(a)))
    least, most = (labels - failures) / size, (size - failures) / size
    ends = [min(max(1 - high, least), most), min(max(1 - low, least), most)]
    ends = math.floor(ends[0] * size + 1e-6) / size, math.ceil(ends[1] * size - 1e-6) / size
    apart = share - (elsewhere + failures) / size  # from what predictions and labels alone say
    value = 1 - share + trust * 0.5 * min(1.0, variance / max(apart**2, 1e-300)) * apart
    return min(max(value, ends[0]), ends[1]), math.sqrt(variance), *ends


def recompute(files, name):
    """Recompute the accuracy of one track by its design, and compare it with what the estimate states."""
    own = json.loads(files[name])
    stated = json.loads(files[own["estimate"]])["by_design"]
    rounds = [{key: np.array(v) if isinstance(v, list) else v for key, v in item.items()} for item in own["rounds"]]
    if own["kind"] == "simple random":
        found = simple_random(rounds, own["pool_size"], stated["level"])
    elif own["kind"] == "predicted":
        found = predicted(rounds, own["pool_size"], stated["level"], own["trust"], own["elsewhere"])
    else:  # a linear estimator: the value only
        found = (1 - sum(item["predicted"] + float(item["weights"] @ (1 - item["outcome"])) for item in rounds),)
    fields = ("value", "standard_error", "low", "high")[: len(found)]
    gap = max(abs(stated[field] - float(value)) for field, value in zip(fields, found, strict=True))
    check(gap <= 1e-12, f"{name}: recomputed {found}, stated {[stated[field] for field in fields]}")
    for item in own["rounds"]:
        for answer, outcome in zip(item["answers"], item["outcome"], strict=True):
            if own["measure"] == "accuracy" and own["exact"]:
                check((answer[1] == answer[2]) == (outcome == 1), f"{name}: outcome of {answer[0]}")
    print(f"{name}: {stated['value']:.6f} recomputed, {', '.join(fields)}, within {gap:.1e}")


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
