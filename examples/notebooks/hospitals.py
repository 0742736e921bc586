# %% [markdown]
# # Hospitals with rows: which columns matter over all of them?
#
# Three hospitals record the same things about different patients. Each alone is small; none may hand patients over. Which
# measurements go with the outcome over all three, with a bound on how many of the finds are noise? And does a model of all
# three do better than each hospital's own?

# %%
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold, cross_val_score

import fedsift as fs

rng = np.random.default_rng(3)
MEASURED = ["age", "lactate", "creatinine", "pulse", "sodium", *(f"marker_{i}" for i in range(1, 16))]


def patients(count, shift):
    """Made-up patients. Lactate, creatinine and age go with the outcome; hospitals see different mixtures of people."""
    X = pd.DataFrame(rng.normal(size=(count, len(MEASURED))), columns=MEASURED)
    X["age"] += shift
    y = 1.3 * X["lactate"] + 1.1 * X["creatinine"] + 0.9 * X["age"] + rng.logistic(size=count) > shift
    return X.assign(died=y.astype(int))


tables = {"north": patients(260, 0.0), "south": patients(220, 0.4), "coast": patients(240, -0.3)}

# %%
fed = fs.Federation.from_tables(tables, id=None, label="died", partition="horizontal")
print(fed, f"{fed.n_rows} patients")

# %% [markdown]
# ## Columns, with a bound on false finds
#
# Knockoffs puts a made-up twin beside each column and keeps what beats its twin clearly: of what it keeps, at most a share
# `fdr` is noise in the mean, also when columns go together. The hospitals send sums under masks, no row.

# %%
selector = fs.Knockoffs(fdr=0.2, random_state=1).fit(fed)
print("kept:", selector.get_feature_names_out().tolist())

# %%
assert {"lactate", "creatinine", "age"} <= set(selector.get_feature_names_out())
assert len(selector.get_feature_names_out()) <= 6
print(selector.scores_.drop_duplicates("feature").head(6).round(3).to_string(index=False))

# %% [markdown]
# ## One model over all hospitals
#
# `cross_val_score` is scikit-learn's own: in each fold the hospitals train together on the other folds' patients.

# %%
folds = KFold(3, shuffle=True, random_state=0)
chosen = selector.transform(fed)
together = cross_val_score(fs.FedLinear(rounds=60), chosen, cv=folds)
print("accuracy together:", together.round(3), "mean", together.mean().round(3))

# %% [markdown]
# Beside it: each hospital's own model on all columns, tried on the others' patients.

# %%
alone = {}
for name, own in tables.items():
    fitted = LogisticRegression(max_iter=1000).fit(own[MEASURED], own["died"])
    rest = pd.concat([table for other, table in tables.items() if other != name])
    alone[name] = round(accuracy_score(rest["died"], fitted.predict(rest[MEASURED])), 3)
print("accuracy of each alone, elsewhere:", alone)
assert together.mean() > min(alone.values())

# %% [markdown]
# ## What left each hospital
#
# Sums over all patients of a hospital, under masks that cancel when the hospitals' sums are added: the coordinator reads
# the total of all three.

# %%
print(selector.ledger_)
