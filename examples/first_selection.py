"""A bank and a shop know different things about partly the same customers. Which columns tell of a default?

    python examples/first_selection.py [report.html]

Neither table leaves its owner: the two find their shared customers by blinded ids, and the shop counts its columns
against labels that it only gets encrypted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fedsift as fs

DATA = Path(__file__).parent / "two_files"


def main(report: str | None = None) -> None:
    # A federation: who holds which file, by which column rows are matched, and who holds the label.
    # One process plays both parties here; they exchange the same bytes as two machines would.
    fed = fs.Federation.from_tables(
        {"bank": DATA / "bank.csv", "shop": DATA / "shop.csv"},
        id={"bank": "customer", "shop": "client"},
        label=("bank", "default"),
    )
    print(f"{fed.n_rows} customers are in both files; columns: {fed.n_columns}")

    # A selector works like one of scikit-learn: parameters first, then fit.
    selector = fs.InformationValue(n_features=4).fit(fed)
    print("\nThe four columns that tell most about a default:")
    for party, columns in selector.selected_.items():
        print(f"  {party}: {', '.join(columns)}")
    print("\nThe scores of all columns:")
    print(selector.scores_.to_string(index=False))

    # What each party gave away to get there; the privacy officer's question.
    print("\nWho learned what:")
    print(selector.ledger_)

    # Each party keeps its own columns, with no one else. (On disk: selection.save("selection.json"), fedsift apply.)
    shop = selector.selection_.apply(fs.Table.read(DATA / "shop.csv", id="client", name="shop"), "shop")
    print(f"\nThe shop goes on with {shop.n_rows} rows of {', '.join(shop.columns)}")

    if report is not None:
        print(f"\nThe same to read and to show: {selector.report(report)}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
