# %% [markdown]
# # A researcher's comparison: methods side by side, with nulls and costs
#
# Published selectors are compared on different splits, with different models, and rarely beside "all columns" or "as many
# random ones". Here they run under one API on the same folds: selection inside each fold, the model trained by the parties,
# bytes and rounds as they were on the wire.

# %%
import pandas as pd
from sklearn.datasets import load_breast_cancer

import fedsift as fs

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X.columns = [name.replace(" ", "_") for name in X.columns]
fed = fs.Federation.split(X, y, parties=3, how="random", duplicates=True, random_state=0)
print(fed, fed.n_columns)

# %% [markdown]
# `duplicates=True` gives half of the parties copies of columns that another has, as MUSE's paper does: filters that score
# columns one by one keep both, mRMR does not.

# %%
methods = {
    "information value": fs.InformationValue(n_features=5),
    "F statistic (SFFS)": fs.SFFS(n_features=5),
    "mRMR (MUSE)": fs.Muse(n_features=5, n_bins=5),
    "federated lasso": fs.FederatedLasso(n_features=5, max_iter=15),
}
result = fs.evaluate(fed, methods, model="linear", cv=3, random_state=0)

# %% [markdown]
# Scores on rows that neither selection nor model has seen, then the nulls. `jaccard` says how alike the columns are that
# the folds keep.

# %%
table = result.frame()
measures = ["method", "n_features", *result.metrics[:2], "jaccard", "bytes", "rounds"]
print(table[[name for name in measures if name in table]].round(3).to_string(index=False))

# %%
auc = table.set_index("method")["auc"]
assert auc.max() > 0.97
best = auc.drop([name for name in auc.index if "random" in name or "all" in name]).idxmax()
print(f"best by AUC: {best}; all columns have {auc['all features']:.3f}: no claim beyond that holds on this table")

# %% [markdown]
# ## What is kept, and what is kept twice
#
# The filters name columns whose counts are the same in every bin: copies.

# %%
kept = {name: method.fit(fed) for name, method in methods.items()}
pairs = kept["information value"].details_["sure"]["copies"]
assert pairs
assert all(column == copy for _, column, _, copy in pairs)  # here a copy has the name of its original
print("copies named by information value:", pairs[:3])
print("redundancy of mRMR's columns:", round(kept["mRMR (MUSE)"].details_["redundancy"], 2))
pd.DataFrame({name: fitted.get_support().astype(int) for name, fitted in kept.items()}).sum()

# %% [markdown]
# ## How much of it is luck?
#
# `Stable` chooses on many halves of the rows and keeps what comes out of most of them, with a bound on the expected share of
# noise.

# %%
stable = fs.Stable("sffs", q=5, pairs=5, fdr=0.2, random_state=0).fit(fed)
print(stable.selected_)

# %% [markdown]
# ## With differential privacy
#
# The same filter with noise for each person's values. How many of the five columns are still there?

# %%
exact = set(kept["information value"].get_feature_names_out())
for epsilon in (10.0, 3.0, 1.0):
    noisy = fs.InformationValue(n_features=5, epsilon=epsilon).fit(fed)
    print(f"epsilon {epsilon:g}: {len(exact & set(noisy.get_feature_names_out()))} of 5")

# %% [markdown]
# A method of your own joins such a table in a page of code: [adding a method](../adding-a-method.md). What attacks read of
# each method's messages: [exposure](../exposure.md). All tables with commands and nulls: [results](../results.md).
