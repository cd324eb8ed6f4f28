"""Classics on `films`: are two reviews about the same film? Bags of words and of character n-grams, by scikit-learn.

    python -m benchmarks.films [--data-dir FOLDER] [--json FILE]

They see the same pairs, cut at the same length, as `resofire train films`. A review becomes a vector of tf-idf weights
of its words, or of its character 4-grams within words; vocabulary and weights are those of the training reviews. Two
classifiers of a pair (a, b): the cosine of a and b against a threshold, and a logistic regression on √(a_i b_i), which
weighs each word or n-gram that the two share. Threshold and regularisation are chosen on the validation
split; the test split is scored once.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from resofire import data
from resofire.data import DataError, Split

SPLITS = ("train", "validation", "test")
BAGS: dict[str, dict[str, Any]] = {
    "words": {"sublinear_tf": True, "min_df": 2, "stop_words": "english"},
    "character 4-grams": {"analyzer": "char_wb", "ngram_range": (4, 4), "sublinear_tf": True, "min_df": 5},
}
STRENGTHS = (0.1, 1.0, 10.0)


def documents(split: Split, symbols: tuple[str, ...]) -> list[str]:
    """The reviews of a split as text, without the mark at their end: 2i and 2i + 1 are pair i."""
    letters, texts = np.array(symbols, dtype=object), []
    for batch in split.batches(256):
        assert batch.cu_seqlens is not None
        tokens, bounds = batch.x[0].numpy(), batch.cu_seqlens.tolist()
        texts += ["".join(letters[tokens[a : b - 1]]) for a, b in itertools.pairwise(bounds)]
    return texts


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The threshold with most pairs right where those above it are called the same."""
    order = np.argsort(scores)
    right = np.concatenate([[0], np.cumsum(np.where(labels[order] == 0, 1, -1))])
    at = int(right.argmax())
    return -np.inf if at == 0 else float(scores[order][at - 1])


def results(task: data.Task) -> list[dict[str, Any]]:
    """Accuracy of each method on validation and test."""
    assert task.symbols is not None
    texts = {name: documents(task[name], task.symbols) for name in SPLITS}
    labels = {name: np.asarray(task[name].labels) for name in SPLITS}
    rows = []
    for bag, settings in BAGS.items():
        vectorizer = TfidfVectorizer(dtype=np.float32, **settings)
        vectors = {"train": vectorizer.fit_transform(texts["train"])}
        vectors |= {name: vectorizer.transform(texts[name]) for name in SPLITS[1:]}
        products = {name: each[0::2].multiply(each[1::2]).tocsr() for name, each in vectors.items()}
        cosine = {name: np.asarray(each.sum(1)).ravel() for name, each in products.items()}
        threshold = best_threshold(cosine["validation"], labels["validation"])
        same = {name: cosine[name] > threshold for name in SPLITS}
        rows.append(row(f"{bag}, cosine", f"threshold {threshold:.3f}", same, labels))
        shared = {name: each.sqrt() for name, each in products.items()}
        fits = [LogisticRegression(C=each, max_iter=300).fit(shared["train"], labels["train"]) for each in STRENGTHS]
        best = max(fits, key=lambda fit: fit.score(shared["validation"], labels["validation"]))
        rows.append(
            row(f"{bag}, logistic regression", f"C = {best.C:g}", {n: best.predict(shared[n]) for n in SPLITS}, labels)
        )
    return rows


def row(method: str, chosen: str, predictions: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> dict[str, Any]:
    """A row of the table."""
    return {
        "method": method,
        "chosen": chosen,
        **{name: float(np.mean(predictions[name] == labels[name])) for name in SPLITS},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.films", description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", type=Path, help="folder of the data; RESOFIRE_DATA by default")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    try:
        task = data.load("films", arguments.data_dir)
    except DataError as error:
        print(f"films: {error}", file=sys.stderr)
        return 2
    rows = results(task)
    print("| method | chosen on validation | training | validation | test |\n|---|---|---|---|---|")
    for each in rows:
        print(f"| {each['method']} | {each['chosen']} | " + " | ".join(f"{each[name]:.2%}" for name in SPLITS) + " |")
    print(f"{', '.join(f'{len(task[name].labels):,} {name}' for name in SPLITS)} pairs")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
