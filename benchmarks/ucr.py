"""`resofire fit` without tuning beside three classics, on eleven sets of the UCR archive.

    python -m benchmarks.ucr [--sets ECG5000 FordB] [--minutes 5] [--work runs/ucr] [--methods dtw fit]

Baselines, computed here on the same files: the nearest neighbour by Euclidean distance and by dynamic time warping
without a window, and a ridge classifier on 10,000 random convolution kernels (ROCKET: the share of positive values and
the maximum of each). Series of different lengths are resampled to the longest; warping also takes them as they are, and
both neighbours take series as they are or each standardised: whichever is right more often on the training file, with
each series left out once. Every result is written as soon as it is known, and what is known is not computed again: an
interrupted run resumes. The archive is searched in RESOFIRE_DATA/ucr (ucr-11.tar.xz, or NAME_TRAIN.tsv themselves).
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import StandardScaler

from resofire import data
from resofire.atomic import write_atomic
from resofire.data import DataError, Split
from resofire.data.files import data_dir, members

SETS = (
    "ACSF1", "AllGestureWiimoteX", "Computers", "CricketX", "ECG5000", "EOGHorizontalSignal", "Earthquakes", "Fish",
    "FordB", "FreezerRegularTrain", "GesturePebbleZ1",
)  # fmt: skip
METHODS = {"euclid": "1-NN Euclidean", "dtw": "1-NN DTW", "kernels": "random kernels", "fit": "resofire fit"}
KERNELS = 10_000
Series = list[np.ndarray]


def files(name: str, work: Path) -> tuple[Path, Path]:
    """The training and test file of a set, unpacked into the work folder if they are in the archive."""
    base = data_dir(None)
    names = (f"{name}_TRAIN.tsv", f"{name}_TEST.tsv")
    places = [work / "files", *([] if base is None else [base / "ucr", base])]
    for place in places:
        if all((place / each).exists() for each in names):
            return place / names[0], place / names[1]
    archive = next((place / "ucr-11.tar.xz" for place in places if (place / "ucr-11.tar.xz").exists()), None)
    if archive is None:
        raise DataError(f"ucr: {names[0]} is missing: put it, or ucr-11.tar.xz, into the folder ucr of RESOFIRE_DATA")
    (work / "files").mkdir(parents=True, exist_ok=True)
    for path, content in members(archive, {r"_(TRAIN|TEST)\.tsv$": 1 << 28}, kept=1 << 30):
        write_atomic(work / "files" / Path(path).name, content)
    return work / "files" / names[0], work / "files" / names[1]


def series(split: Split) -> tuple[Series, np.ndarray]:
    """The sequences [T_i] of a split, and their labels."""
    batches = [split.batch(np.array([number])) for number in range(len(split))]
    return [batch.x[0, :, 0].numpy().astype(np.float64) for batch in batches], np.asarray(split.labels)


def resampled(rows: Series, length: int) -> np.ndarray:
    """All sequences stretched to one length, [n, length]."""
    at = np.linspace(0, 1, length)
    return np.stack([row if len(row) == length else np.interp(at, np.linspace(0, 1, len(row)), row) for row in rows])


def forms(x: Series, test_x: Series, *, equal: bool = False) -> list[tuple[Series, Series]]:
    """Training and test series as they are, stretched to one length (`equal`: only so), and each standardised."""
    known = [(x, test_x)]
    if len({*map(len, [*x, *test_x])}) > 1:
        length = max(map(len, x))
        stretched = [*resampled(x, length)], [*resampled(test_x, length)]
        known = [stretched] if equal else [*known, stretched]
    if any(abs(row.std() - 1) > 0.05 for row in x):
        known += [([*map(standardised, x)], [*map(standardised, test_x)]) for x, test_x in known]
    return known


def standardised(row: np.ndarray) -> np.ndarray:
    """A series of mean 0 and deviation 1, unless it is constant."""
    return (row - row.mean()) / (row.std() or 1)


def nearest_neighbour(
    task: data.Task, find: Callable[[Series, Series, bool], np.ndarray], *, equal: bool
) -> tuple[int, int]:
    """Correct answers and their number, in the form of the series that is best on the training file."""
    (x, y), (test_x, test_y) = series(task["train"]), series(task["test"])
    known = forms(x, test_x, equal=equal)
    left_out = [int((y[find(x, x, True)] == y).sum()) for x, _ in known] if len(known) > 1 else [0]
    x, test_x = known[int(np.argmax(left_out))]
    return int((y[find(x, test_x, False)] == test_y).sum()), len(test_y)


def euclid(task: data.Task) -> tuple[int, int]:
    """Correct answers of the nearest neighbour by Euclidean distance, and their number."""
    return nearest_neighbour(task, _closest, equal=True)


def _closest(known: Series, asked: Series, leave_out: bool) -> np.ndarray:
    """The nearest series of each; with `leave_out`, other than the one of its own number."""
    rows = np.stack(known)
    distances = (rows**2).sum(1) - 2 * np.stack(asked) @ rows.T
    if leave_out:
        np.fill_diagonal(distances, np.inf)
    return distances.argmin(1)


def dtw(task: data.Task) -> tuple[int, int]:
    """The same by dynamic time warping."""
    return nearest_neighbour(task, _least_warped, equal=False)


def _least_warped(known: Series, asked: Series, leave_out: bool) -> np.ndarray:
    """As `_closest`, by warping."""
    length = max(map(len, known))
    packed, bounds = np.concatenate(known), np.cumsum([0, *map(len, known)])
    stretched = resampled(known, length)
    nearest = np.empty(len(asked), np.int64)
    for number, row in enumerate(asked):
        # The nearest by Euclid come first, so that most others are abandoned early.
        straight = ((stretched - resampled([row], length)) ** 2).sum(1)
        order = np.argsort(straight, kind="stable")
        order = order[order != number] if leave_out else order
        # Of series of one length, warping makes distances smaller.
        limits = straight * (1 + 1e-9) if len(row) == length and len(packed) == stretched.size else straight + np.inf
        nearest[number] = _nearest(row, packed, bounds, order, limits)
    return nearest


@numba.njit(cache=True)
def _nearest(row: np.ndarray, packed: np.ndarray, bounds: np.ndarray, order: np.ndarray, limits: np.ndarray) -> int:
    best, nearest = np.inf, 0
    for number in order:
        distance = _warped(row, packed[bounds[number] : bounds[number + 1]], min(best, limits[number]))
        if distance < best:
            best, nearest = distance, number
    return nearest


@numba.njit(cache=True)
def _warped(a: np.ndarray, b: np.ndarray, limit: float) -> float:
    """The sum of squared differences along the best warping path; infinite if it is above the limit.

    Costs are computed by diagonals, on which they are independent of each other, and only next to cells that are not
    above the limit.
    """
    m, n = len(a), len(b)
    backwards = b[::-1].copy()
    # costs[i + 1] is that of a[i] with b[diagonal - i]; of the two diagonals before, `last` and `older`.
    older, last, costs = np.full(m + 2, np.inf), np.full(m + 2, np.inf), np.full(m + 2, np.inf)
    older[0] = 0.0
    # First and last cell within the limit, of the two diagonals before.
    older_first, older_end, last_first, last_end = -1, -1, m, -1
    for diagonal in range(m + n - 1):
        low = max(0, diagonal - n + 1, min(last_first, older_first + 1))
        high = min(m, diagonal + 1, max(last_end, older_end) + 2)
        if low >= high:
            return np.inf
        costs[low] = costs[high + 1] = np.inf
        first, second = a[low:high], backwards[low + n - 1 - diagonal : high + n - 1 - diagonal]
        up, left, both, now = last[low:high], last[low + 1 : high + 1], older[low:high], costs[low + 1 : high + 1]
        for i in range(high - low):
            now[i] = (first[i] - second[i]) ** 2 + min(up[i], min(left[i], both[i]))
        older_first, older_end, last_first, last_end = last_first, last_end, low, high - 1
        while last_first < high and not costs[last_first + 1] <= limit:
            last_first += 1
        while last_end >= low and not costs[last_end + 1] <= limit:
            last_end -= 1
        if last_first == high:
            last_first, last_end = m, -1
        older, last, costs = last, costs, older
    return last[m] if last_end == m - 1 else np.inf


def kernels(task: data.Task, count: int = KERNELS, seed: int = 0) -> tuple[int, int]:
    """Correct answers of a ridge classifier on features of random convolution kernels."""
    (x, y), (test_x, test_y) = series(task["train"]), series(task["test"])
    length = max(map(len, x))
    drawn = _draw(length, count, np.random.RandomState(seed))
    known, asked = (_features(resampled(rows, length), *drawn) for rows in (x, test_x))
    scaler = StandardScaler().fit(known)
    ridge = RidgeClassifierCV(alphas=np.logspace(-3, 3, 10)).fit(scaler.transform(known), y)
    return int((ridge.predict(scaler.transform(asked)) == test_y).sum()), len(test_y)


def _draw(length: int, count: int, random: np.random.RandomState) -> tuple[np.ndarray, ...]:
    """Weights [count, 11] (shorter kernels end in zeros), lengths, biases, dilations and paddings."""
    lengths = random.choice([size for size in (7, 9, 11) if size <= length] or [1], count)
    weights = np.zeros((count, 11))
    dilations, paddings = np.ones(count, np.int64), np.zeros(count, np.int64)
    for number, size in enumerate(lengths):
        drawn = random.standard_normal(size)
        weights[number, :size] = drawn - drawn.mean()
        most = math.log2(max(1, (length - 1) / max(1, size - 1)))
        dilations[number] = int(2 ** random.uniform(0, most))
        paddings[number] = (size - 1) * dilations[number] // 2 if random.randint(2) else 0
    return weights, lengths.astype(np.int64), random.uniform(-1, 1, count), dilations, paddings


@numba.njit(cache=True)
def _features(
    x: np.ndarray, weights: np.ndarray, lengths: np.ndarray, biases: np.ndarray, dilations: np.ndarray,
    paddings: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The share of positive values and the maximum of each kernel on each series, [n, 2 kernels]."""
    features = np.zeros((len(x), 2 * len(weights)))
    for n in range(len(x)):
        row = x[n]
        for k in range(len(weights)):
            size, dilation, padding = lengths[k], dilations[k], paddings[k]
            steps = max(0, len(row) + 2 * padding - (size - 1) * dilation)
            totals = np.full(steps, biases[k])
            for j in range(size):
                weight, shift = weights[k, j], j * dilation - padding
                for i in range(max(0, -shift), min(steps, len(row) - shift)):
                    totals[i] += weight * row[i + shift]
            features[n, 2 * k], features[n, 2 * k + 1] = (totals > 0).sum() / max(1, steps), totals.max()
    return features


CLASSICS: dict[str, Callable[[data.Task], tuple[int, int]]] = {"euclid": euclid, "dtw": dtw, "kernels": kernels}


def fit(name: str, work: Path, minutes: float, missing: str) -> tuple[int, int]:
    """Correct answers of `resofire fit` on the files, with its defaults; an interrupted run is resumed."""
    train, test = files(name, work)
    run = work / f"{name}-{minutes:g}"
    command = [sys.executable, "-m", "resofire.cli"]
    if (run / "run.json").exists() and not (run / "result.json").exists():
        subprocess.run([*command, "train", "--resume", str(run)], check=True, stdout=subprocess.DEVNULL)
    elif not (run / "result.json").exists():
        options = ["--test", str(test), "--minutes", str(minutes), "--out", str(run), "--missing", missing]
        subprocess.run([*command, "fit", str(train), *options], check=True, stdout=subprocess.DEVNULL)
    correct, count = json.loads((run / "result.json").read_text())["correct"]["test"]
    return correct, count


def table(results: dict[str, Any]) -> str:
    """The results in Markdown, with the median of each method that has all of these sets."""
    rows = ["| set | classes | train / test | steps | " + " | ".join(METHODS.values()) + " |"]
    rows.append("|---|---|---|---|" + "---|" * len(METHODS))
    for name, row in results.items():
        cells = [_percent(row.get(method)) for method in METHODS]
        shape = f"{row['train']:,} / {row['test']:,} | {row['steps']:,}"
        rows.append(f"| {name} | {row['classes']} | {shape} | " + " | ".join(cells) + " |")
    middle = []
    for method in METHODS:
        shares = [row[method]["correct"] / row[method]["count"] for row in results.values() if method in row]
        middle.append(f"{100 * median(shares):.1f}" if shares and len(shares) == len(results) else "")
    rows.append("| **median** | | | | " + " | ".join(middle) + " |")
    both = [row for row in results.values() if "fit" in row and "dtw" in row]
    ahead = sum(row["fit"]["correct"] > row["dtw"]["correct"] for row in both)
    rows.append(f"\n`resofire fit` is ahead of 1-NN DTW on {ahead} of {len(both)} sets.")
    return "\n".join(rows)


def _percent(result: dict[str, Any] | None) -> str:
    return "" if result is None else f"{100 * result['correct'] / result['count']:.1f}"


def main() -> None:
    """Compute what is missing, set by set, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--minutes", type=float, default=5.0, help="budget of resofire fit for a set")
    parser.add_argument("--work", type=Path, default=Path("runs/ucr"), help="folder of runs and results.json")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    file = work / "results.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in arguments.sets:
        train, test = files(name, work)
        # Missing values inside of a series are rare there; at the end they are padding.
        task = data.from_path(train, test=test, validation=0, missing="interpolate", name=name)
        row = results.setdefault(name, {
            "classes": task.classes, "train": len(task["train"]), "test": len(task["test"]),
            "steps": int(task["train"].lengths.max()),
        })  # fmt: skip
        for method in arguments.methods:
            if method in row:
                continue
            begun = time.monotonic()
            if method == "fit":
                correct, count = fit(name, work, arguments.minutes, "interpolate")
            else:
                correct, count = CLASSICS[method](task)
            row[method] = {"correct": correct, "count": count, "seconds": round(time.monotonic() - begun, 1)}
            write_atomic(file, (json.dumps(results, indent=2) + "\n").encode())
            print(f"{name}: {METHODS[method]} {100 * correct / count:.1f} % in {row[method]['seconds']} s", flush=True)
    print(table({name: results[name] for name in SETS if name in results}))


if __name__ == "__main__":
    main()
