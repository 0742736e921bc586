"""New features over three clinics that hold the same columns about different patients.

    python examples/engineered_features.py

What matters here is a product of two columns, which a linear model cannot see in either of them. No clinic shows a
row: the coordinator learns totals over all clinics only, and each clinic computes the new features on its own rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

import fedsift as fs


def patients(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Made-up patients; the risk depends on dose times weight."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, 5)), columns=["age", "dose", "pulse", "weight", "height"])
    return X, X["dose"] * X["weight"] + 0.5 * X["age"] + rng.normal(0, 0.3, rows)


def main() -> None:
    # One table, cut by rows into three parties.
    X, y = patients(600, seed=0)
    fed = fs.Federation.split(X, y, parties=["north", "south", "west"], partition="horizontal")

    # Pairs of columns that work together are found first, then combined; a combination stays if it helps on
    # validation rows. Small numbers here, so that it takes seconds.
    engineer = fs.FedIIFE(n_pairs=2, max_features=2, shortlist=5).fit(fed)
    best = engineer.details_["ranking"][0]
    print(f"The pair that works together most: {best['first']} and {best['second']}")
    print("New features, as formulas that every clinic can compute:")
    for formula in engineer.expressions_:
        print(f"  {formula}")

    # Did it help? A model on patients that nobody has seen, before and after.
    X_new, y_new = patients(400, seed=1)
    maker = engineer.selection_.transformer("north").fit(X)
    before = LinearRegression().fit(X, y).score(X_new, y_new)
    after = LinearRegression().fit(maker.transform(X), y).score(maker.transform(X_new), y_new)
    print(f"R2 on new patients: {before:.3f} with the columns, {after:.3f} with the new features beside them")

    # What left one clinic (engineer.ledger_ has it all): mostly sums under masks that vanish in the total.
    sent = engineer.ledger_.disclosures()
    sent = sent[(sent["sender"] == "north") & (sent["form"] != "control")]
    print("\nWhat the clinic 'north' sent:")
    for row in sent.itertuples():
        print(f"  {row.form}: {row.about}, {row.bytes:,} bytes")


if __name__ == "__main__":
    main()
