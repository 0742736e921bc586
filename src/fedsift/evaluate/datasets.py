"""Data to try things on: named benchmark tables from a folder, a generated one, and the demo's three organisations.

The benchmark tables are not part of the package; ``load`` reads NAME.parquet from a folder that the user names. The
demo is made from the breast cancer data that scikit-learn ships, so it needs no network.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from fedsift.core.table import Table
from fedsift.core.wanted import suggest
from fedsift.errors import DataError, ParameterError

#: The environment variable that names the folder of benchmark tables.
FOLDER_VARIABLE = "FEDSIFT_DATA"

# Where the tables that the papers use are published.
_PUBLISHED = {
    "the ASU feature selection collection (scikit-feature)": (
        "arcene basehock coil20 colon isolet leukemia lung_discrete madelon nci9 orl32 pixraw10p relathe tox_171 "
        "warppie10p yale32 yale64 gisette lung pcmac"
    ),
    "the UCI machine learning repository": (
        "adult airfoil_self_noise bank_marketing breast_cancer_wdbc cnae9 default_credit dna isolet5 musk_v1 "
        "phishing_websites sonar spambase wine_quality_red"
    ),
    "OpenML": "gina_agnostic jm1 openml_586_fri_c3_1000_25",
    "scikit-learn's fetch_california_housing": "california_housing",
    "the examples of the FATE project": ("fate_breast fate_default_credit fate_dvisits fate_epsilon_5k fate_student"),
    "the book site of The Elements of Statistical Learning": "usps",
}


def load(name: str, path: str | Path | None = None) -> tuple[pd.DataFrame, pd.Series]:
    """Features and target of a benchmark table, from NAME.parquet with a column ``target``.

    ``path`` is the folder (or the file); without it, the folder in the environment variable FEDSIFT_DATA.
    """
    folder = path if path is not None else os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise DataError(f"no folder for the data set {name!r}. {_how_to_get(name)}")
    file = Path(folder)
    if file.suffix != ".parquet":
        file = file / f"{name}.parquet"
    if not file.is_file():
        there = sorted(found.stem for found in file.parent.glob("*.parquet"))
        hint = suggest(name, there) if there else f"The folder {str(file.parent)!r} has no Parquet files."
        raise DataError(f"there is no data set {name!r} in {str(file.parent)!r}. {hint} {_how_to_get(name)}")
    try:
        frame = pl.read_parquet(file).to_pandas()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{file.name} cannot be read ({type(error).__name__}); is the file complete?") from None
    if "target" not in frame:
        raise DataError(
            f"{file.name} has no column 'target', which must hold what is to be predicted; add or rename it"
        )
    target = frame.pop("target")
    return frame, target


def _how_to_get(name: str) -> str:
    source = next((where for where, names in _PUBLISHED.items() if name in names.split()), None)
    origin = f"{name!r} is published by {source}: save it" if source else "Save the table"
    return (
        f"{origin} as {name}.parquet, features plus a column 'target', in a folder; then set {FOLDER_VARIABLE} to the "
        "folder or give path=..."
    )


def friedman(
    n_samples: int = 1000, n_noise: int = 995, random_state: int | None = None, *, noise: float = 0.0
) -> tuple[pd.DataFrame, pd.Series]:
    """Friedman's first regression problem: ``x1`` to ``x5`` matter, ``n_noise`` uniform columns do not.

    ``noise`` is the standard deviation of what is added to the target.
    """
    from sklearn.datasets import make_friedman1

    if n_samples < 1 or n_noise < 0:
        raise ParameterError(f"n_samples={n_samples!r} must be 1 or more, n_noise={n_noise!r} 0 or more")
    values, target = make_friedman1(n_samples, n_features=5 + n_noise, noise=noise, random_state=random_state)
    names = [f"x{i}" for i in range(1, 6)] + [f"noise_{i}" for i in range(1, n_noise + 1)]
    return pd.DataFrame(values, columns=names), pd.Series(target, name="target")


# --- the demo --------------------------------------------------------------------------------------------------------

_SHAPE = ["smoothness", "compactness", "concavity", "concave_points", "symmetry", "fractal_dimension"]
_MEASURES = ["radius", "texture", "perimeter", "area", *_SHAPE]  # in scikit-learn's order
_FIRST_LOOK = ["texture", "smoothness", "symmetry", "fractal_dimension"]
_NEW = 69  # patients who come later: predicted, not trained on
_SUFFIXES = {"hospital": ".csv", "lab": ".csv", "insurer": ".parquet"}


def demo_tables(random_state: int = 0, *, new: bool = False) -> dict[str, pd.DataFrame]:
    """Three organisations that know different things about partly the same patients (ids in ``patient``).

    - ``hospital``: a first look at a biopsy, ``age`` and ``ward`` (unrelated), and the label ``malignant``. A leak:
      ``therapy_days`` was written down after the diagnosis, and tells it.
    - ``lab``: what its image analysis measures, which helps, with gaps; ``assay_1`` to ``assay_5`` are noise, and
      ``nuclear_texture`` repeats the hospital's ``texture``.
    - ``insurer``: nothing that helps: ``plan`` (a little related to the label), ``joined`` (a date) and noise.

    Each lacks 5 to 8 % of 500 patients and has 20 to 60 that nobody else has. ``new``: the 69 patients who come later,
    whom all three know.
    """
    rng = np.random.default_rng(random_state)
    everything, malignant = _measurements()
    n = len(everything)
    ids = _patient_ids(n + 3 * 60, rng)
    strangers, order = np.split(ids[n:], 3), rng.permutation(n)
    whole = {
        "hospital": _hospital(everything, malignant, rng),
        "lab": _lab(everything, rng),
        "insurer": _insurer(malignant, rng),
    }
    known, later = order[_NEW:], order[:_NEW]
    if new:
        return {name: _named(table.iloc[rng.permutation(later)], ids) for name, table in whole.items()}
    return {
        name: _own_patients(table.iloc[known].reset_index(drop=True), ids[known], strangers[i], rng)
        for i, (name, table) in enumerate(whole.items())
    }


def write_demo(folder: str | Path, random_state: int = 0) -> dict[str, Path]:
    """Write hospital.csv, lab.csv and insurer.parquet, and new-hospital.csv and so on; each party's first file."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}{suffix}" for name, suffix in _SUFFIXES.items()}
    for name, table in demo_tables(random_state, new=True).items():
        Table.read(table, id="patient", name=name).write(new_file(paths[name]))
    for name, table in demo_tables(random_state).items():
        Table.read(table, id="patient", name=name).write(paths[name])
    return paths


def new_file(path: Path) -> Path:
    """Where the patients who come later stand beside a party's file."""
    return path.with_name(f"new-{path.name}")


def _measurements() -> tuple[pd.DataFrame, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    values, target = load_breast_cancer(return_X_y=True)
    names = [*_MEASURES, *(f"{m}_error" for m in _MEASURES), *(f"worst_{m}" for m in _MEASURES)]
    return pd.DataFrame(values, columns=names), target == 0


def _patient_ids(count: int, rng: np.random.Generator) -> np.ndarray:
    """Ids such as P0012-K3, in an order that says nothing about who has them."""
    numbers = rng.choice(np.arange(1, 10_000), size=count, replace=False)
    letters = rng.choice(list("ABCDEFGHJKLMNPQRSTUVWXYZ"), size=count)
    digits = rng.integers(0, 10, size=count)
    return np.array([f"P{n:04d}-{c}{d}" for n, c, d in zip(numbers, letters, digits)], dtype=object)


def _hospital(everything: pd.DataFrame, malignant: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    table = everything[_FIRST_LOOK].copy()
    n = len(table)
    table["age"] = np.clip(rng.normal(56, 12, n), 21, 93).astype(int)
    table["ward"] = rng.choice(["north", "south", "west", "day clinic"], size=n, p=[0.35, 0.3, 0.2, 0.15])
    table["therapy_days"] = np.where(malignant, rng.integers(15, 120, n), 0)
    table["malignant"] = np.where(malignant, "yes", "no")
    return table


def _lab(everything: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    table = everything.drop(columns=_FIRST_LOOK).copy()
    n = len(table)
    for name in ("texture_error", "concavity_error", "symmetry_error", "worst_smoothness"):
        table.loc[rng.random(n) < rng.uniform(0.03, 0.09), name] = np.nan
    for i in range(1, 6):
        table[f"assay_{i}"] = rng.normal(100, 15, n).round(2)
    table.loc[rng.random(n) < 0.05, "assay_3"] = np.nan
    table["nuclear_texture"] = everything["texture"]
    return table


def _insurer(malignant: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    n = len(malignant)
    plans = np.array(["basic", "comfort", "premium"])
    ill, well = rng.choice(3, size=n, p=[0.42, 0.34, 0.24]), rng.choice(3, size=n, p=[0.5, 0.32, 0.18])
    table = pd.DataFrame({"plan": plans[np.where(malignant, ill, well)]})
    table["joined"] = pd.Timestamp("1998-01-01") + pd.to_timedelta(rng.integers(0, 9_000, n), unit="D")
    table["abroad_cover"] = rng.random(n) < 0.3
    table["claims"] = rng.poisson(2.5, n)
    table["distance_km"] = rng.gamma(2.0, 6.0, n).round(1)
    table["deductible"] = rng.choice([0, 150, 300, 500, 1000], size=n)
    return table


def _named(table: pd.DataFrame, ids: np.ndarray) -> pd.DataFrame:
    """With the ids of its rows, by which their places in the whole are known."""
    view = table.copy()
    view.insert(0, "patient", ids[view.index])
    return view.reset_index(drop=True)


def _own_patients(
    table: pd.DataFrame, ids: np.ndarray, strangers: np.ndarray, rng: np.random.Generator
) -> pd.DataFrame:
    """One organisation's view: some patients missing, some of its own, in its own order."""
    n = len(table)
    known = rng.permutation(n)[: n - round(n * rng.uniform(0.05, 0.08))]
    own = strangers[: rng.integers(20, len(strangers) + 1)]
    extra = table.iloc[rng.integers(0, n, len(own))].reset_index(drop=True)
    for name in extra.columns[[d.kind == "f" if isinstance(d, np.dtype) else False for d in extra.dtypes]]:
        decimals = 2 if extra[name].mean() > 1 else 5
        extra[name] = (extra[name] * rng.lognormal(0.0, 0.04, len(extra))).round(decimals)
    view = pd.concat([table.iloc[known], extra], ignore_index=True)
    view.insert(0, "patient", np.concatenate([ids[known], own]))
    return view.iloc[rng.permutation(len(view))].reset_index(drop=True)
