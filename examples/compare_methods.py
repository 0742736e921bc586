"""Which method is best for my data? Several of them on the same rows, beside the nulls.

    python examples/compare_methods.py [compare.html]

Scoring puts the columns into one place to train a model on them. So compare on data that you may pool: public data
as here, or a sample that was released for it.
"""

from __future__ import annotations

import sys

from sklearn.datasets import load_breast_cancer

import fedsift as fs


def main(page: str | None = None) -> None:
    # One public table, cut into two parties by columns: a simulation. Every second row, to be quick.
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    fed = fs.Federation.split(X[::2], y[::2], parties=["hospital", "lab"])

    # The filters: each gives every column a score of its own, with the labels encrypted on the way.
    methods = {
        "information value": fs.InformationValue(n_features=3),
        "gini": fs.GiniFilter(n_features=3),
        "sffs": fs.SFFS(n_features=3),
    }

    # Each method selects on the training rows of a fold and is scored on the others. Beside them stand all columns
    # and random ones: a method that does not beat random columns has found nothing.
    comparison = fs.compare(fed, methods, model="linear", cv=3)
    columns = ["method", "accuracy", "accuracy_std", "n_features", "jaccard", "bytes", "seconds"]
    print(comparison.frame()[columns].to_string(index=False, float_format="{:.3g}".format, na_rep=""))
    print("\njaccard: how alike the columns are that the folds keep (1: the same). bytes: sent in one selection.")

    print(f"\n{comparison.advice()}")
    for name, facts in comparison.evaluation.methods.items():
        print(f"{name} gives away: {facts['leaks']}")

    if page is not None:
        print(f"\nThe same as a page: {comparison.report(page)}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
