# %% [markdown]
# # Credit risk over two companies: from value to prediction
#
# A bank wants to know who will default. A shop has other columns about partly the same people. Neither may hand its table
# over. Is the shop worth a contract? Which of its columns? What does a joint model say about new applicants, and what did
# each company give away for it?
#
# Both companies run in one process here; what they exchange is, byte for byte, what two machines would exchange.

# %%
import numpy as np
import pandas as pd

import fedsift as fs

rng = np.random.default_rng(7)


def people(count, first):
    """Made-up people: what the bank knows, what the shop knows, and who defaults."""
    strain, tidy = rng.normal(size=count), rng.normal(size=count)
    who = pd.Index([f"c{number:05}" for number in range(first, first + count)], name="customer")
    bank = pd.DataFrame(
        {
            "income": np.round(2600 - 500 * strain + 400 * rng.normal(size=count)),
            "utilisation": np.round(1 / (1 + np.exp(-strain + rng.normal(size=count))), 3),
            "years_here": rng.integers(0, 25, count),
            "region": rng.choice(["north", "south", "east", "west"], count),
        },
        index=who,
    )
    shop = pd.DataFrame(
        {
            "late_payments": rng.poisson(np.exp(-0.2 - tidy)),
            "returns_share": np.round(np.clip(0.15 - 0.06 * tidy + 0.05 * rng.normal(size=count), 0, 1), 3),
            "basket": np.round(np.exp(3.5 + 0.5 * rng.normal(size=count)), 2),
            "newsletter": rng.integers(0, 2, count),
        },
        index=who,
    )
    default = (1.6 * strain - 1.6 * tidy + rng.logistic(size=count) > 1.8).astype(int)
    return bank, shop, default


bank, shop, default = people(1500, 0)
bank["default"] = default
bank = bank.sample(1300, random_state=0).reset_index()
shop = shop.sample(1200, random_state=1).reset_index()

# %% [markdown]
# Each company has people whom the other does not know. They are matched by id under encryption: each learns which of its
# **own** customers the other has too, and nothing about the rest.

# %%
fed = fs.Federation.from_tables({"bank": bank, "shop": shop}, id="customer", label=("bank", "default"))
print(f"{fed.n_rows} customers are in both; columns: {fed.n_columns}")

# %% [markdown]
# ## Is the partner worth it?
#
# A joint model with the shop's columns against the bank's own model, on people that neither has seen, with an interval.
# `shuffled` is the same with the shop's rows mixed up: what a useless partner would look like.

# %%
worth = fs.value(fed, folds=5)
print(worth)

# %% [markdown]
# ## Which columns?
#
# The information value of each column, from counts that are summed under encryption. `p` and `FDR` say whether a column is
# told from noise at all; the noise floor is what the best of eight useless columns would score once in twenty runs.

# %%
selector = fs.InformationValue(n_features=4).fit(fed)
print(selector.scores_.round(3).to_string(index=False))
print("noise floor:", round(selector.details_["sure"]["noise_floor"], 3))

# %%
assert set(selector.selected_["bank"]) == {"income", "utilisation"}
assert set(selector.selected_["shop"]) == {"late_payments", "returns_share"}
selector.selected_

# %% [markdown]
# ## What did each company give away?
#
# The ledger has every message. `selector.report("report.html")` shows the same with a page for the privacy officer: who can
# read what in the end, about one person or a total.

# %%
print(selector.ledger_)

# %% [markdown]
# ## A joint model, and new applicants
#
# The model is trained on secret shares: each company keeps the weights of its own columns. Predictions for new applicants
# come by id.

# %%
chosen = selector.transform(fed)
model = fs.VerticalLogisticRegression().fit(chosen)

new_bank, new_shop, truth = people(300, 10_000)
new = fs.Federation.from_tables(
    {"bank": new_bank.reset_index(), "shop": new_shop.reset_index()}, id="customer", label=("bank", None)
)
chances = model.predict_by_id(selector.transform(new))
chance = pd.Series(chances)
print(chance.head(5).round(2).to_string())

# %% [markdown]
# Here we made the people, so we know how they will turn out; a bank learns it a year later.

# %%
turned_out = pd.Series(truth, index=new_bank.index)
ranks = chance.reindex(turned_out.index).rank()
bad = turned_out == 1
auc = (ranks[bad].sum() - bad.sum() * (bad.sum() + 1) / 2) / (bad.sum() * (~bad).sum())
assert auc > 0.8
print(f"AUC on new applicants: {auc:.3f}")

# %% [markdown]
# ## Next
#
# The same as commands over files: `fedsift init bank.csv shop.csv`, `fedsift check`, `value`, `train`, `predict`; between
# two machines: [parties on their own machines](../deploy.md). Before anybody signs, `fedsift audit job.toml` attacks the job
# on your own rows: [audit](../audit.md).
