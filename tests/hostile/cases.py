"""What is fuzzed: every method and model, small, in each of its forms, and what is asked of a model afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import fedsift as fs
from fedsift.core.federation import Federation
from fedsift.core.identity import introduce
from fedsift.core.party import Site
from fedsift.core.transports.base import Transport
from fedsift.methods import METHODS
from fedsift.models.predicted import let_read
from fedsift.mpc.psi import align
from fedsift.site.site import PolicySite
from hostile.coordinator import policy, tables

#: Rules under which a whole run passes: bits and plain forms would refuse some of its steps before they are reached.
RULES: dict[str, Any] = {
    "max_bits": "any", "max_share": 1.0, "min_rows": 20, "max_row_scores": 1000, "total_epsilon": 1000.0,
    "keyed_matching": True,
    "forms": ["control", "ciphertext", "masked", "pseudonymous", "aggregate", "plain"],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A method or model that is fitted, small; ``then`` is what is asked of it on the same rows."""

    make: Callable[[], Any] = lambda: None
    partition: str = "vertical"
    live: bool = False  # the coordinator's own draws are in every number: replies cannot be played again
    then: Callable[[Any, Federation], Any] | None = None
    matching: str = "curve"


def predicted(model: Any, fed: Federation) -> None:
    model.predict(fed)
    model.score(fed)


def for_predictions(model: Any, fed: Federation) -> None:
    """What a job for predictions alone is asked."""
    matched = align(fed.for_predictions().named_view(""), min_overlap=1)
    with model._run(matched) as run:
        let_read(run)
        model._hold(run)


def by_id(model: Any, fed: Federation) -> None:
    model.predict_by_id(fed)


def explained(model: Any, fed: Federation) -> None:
    fs.explain(fed, model, repeats=1)


def noisy(**bounds: tuple[float, float]) -> dict[str, Any]:
    return {"epsilon": 5.0, "bounds": dict.fromkeys(("signal", "noise", "weak", "counts"), (-5.0, 5.0)), **bounds}


TREES = {"n_estimators": 2, "max_depth": 2}
TOLD = {"max_depth": 2, "protection": "coordinator"}
OPENED = {"n_estimators": 2, **TOLD}
SMALL = {"n_operands": 2, "n_features": 2, "functions": ["ab"]}
#: In ``make test``; the rest is for ``make fuzz``.
CASES: dict[str, Case] = {
    "information_value": Case(lambda: fs.InformationValue(n_features=2)),
    "gini with noise": Case(lambda: fs.GiniFilter(n_features=2, epsilon=1.0)),
    "sffs": Case(lambda: fs.SFFS(n_features=2)),
    "random": Case(lambda: fs.RandomFeatures(n_features=2)),
    "muse": Case(lambda: fs.Muse(n_features=2, min_cell=10, n_bins=2)),
    "muse with noise": Case(lambda: fs.Muse(n_features=2, min_cell=10, n_bins=2, epsilon=1.0)),
    "lasso": Case(lambda: fs.FederatedLasso(max_iter=3)),
    "knockoffs": Case(lambda: METHODS["knockoffs"](fdr=0.5, copies=2, open_tables=True)),
    "top_gain": Case(lambda: fs.TopGain(n_features=2, n_estimators=2, max_depth=1, n_bins=4)),
    "top_gain, coordinator": Case(
        lambda: fs.TopGain(n_features=2, n_estimators=2, max_depth=2, protection="coordinator")
    ),
    "boruta": Case(lambda: METHODS["boruta"](rounds=2, n_estimators=2, max_depth=2, protection="coordinator")),
    "secureboost, coordinator": Case(partial(fs.SecureBoostClassifier, **OPENED)),
    "secureboost, open": Case(lambda: fs.SecureBoostClassifier(n_estimators=2, max_depth=2, protection="open")),
    "logistic": Case(lambda: fs.VerticalLogisticRegression(max_iter=3), live=True),
    "additive": Case(lambda: fs.VerticalAdditive(max_iter=3), live=True),
    "hyfdca": Case(lambda: fs.HyFDCA(rounds=2)),
    "network": Case(lambda: fs.SplitNN(epochs=1, width=4)),
    "network, open": Case(lambda: fs.SplitNN(epochs=1, embedding=2, protection="open")),
    "group_lasso": Case(lambda: fs.GroupLasso(epochs=1, width=4, refit_epochs=1)),
    "vertical_flafe": Case(lambda: fs.VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"])),
    "flafe, statistics": Case(
        lambda: fs.VerticalFLAFE(n_operands=2, n_features=2, functions=["ab"], protection="statistics")
    ),
    "fed_linear": Case(fs.FedLinear, "horizontal"),
    "fed_iife": Case(lambda: fs.FedIIFE(n_pairs=2, max_features=2), "horizontal"),
    "fed_halving": Case(lambda: fs.FedHalving(candidates=4, levels=2, max_iter=2, refinements=1), "horizontal"),
    "feature_election": Case(fs.FeatureElection, "horizontal"),
}
MORE: dict[str, Case] = {
    "keyed matching": Case(lambda: fs.RandomFeatures(n_features=2), matching="keyed"),
    "gini, whole": Case(lambda: fs.GiniFilter(n_features=2)),
    "secureboost": Case(partial(fs.SecureBoostClassifier, **TREES), then=predicted),
    "secureboost, early stopping": Case(
        partial(fs.SecureBoostClassifier, n_estimators=2, max_depth=1, n_bins=4, early_stopping_rounds=1)
    ),
    "secureboost, coordinator, predicted": Case(partial(fs.SecureBoostClassifier, **OPENED), then=predicted),
    "secureboost, for predictions": Case(partial(fs.SecureBoostClassifier, **OPENED), then=for_predictions),
    "logistic, for predictions": Case(
        lambda: fs.VerticalLogisticRegression(max_iter=3), live=True, then=for_predictions
    ),
    "secureboost, explained": Case(partial(fs.SecureBoostClassifier, **OPENED), then=explained),
    "secureboost, open, predicted": Case(
        partial(fs.SecureBoostClassifier, **TREES, protection="open", sampling_method="gradient_based"), then=predicted
    ),
    "secureboost, epsilon": Case(partial(fs.SecureBoostClassifier, **OPENED, epsilon=5.0)),
    "boruta, all": Case(lambda: METHODS["boruta"](rounds=2, n_estimators=1, max_depth=2)),
    "top_gain, folds": Case(lambda: fs.TopGain(n_estimators=2, max_depth=2, folds=2)),
    "pso": Case(
        lambda: fs.PsoEvffs(popsize=3, iterations=1, models=1, folds=2, max_trees=2, **TOLD)
    ),
    "logistic, predicted": Case(lambda: fs.VerticalLogisticRegression(max_iter=3), live=True, then=predicted),
    "additive, predicted": Case(lambda: fs.VerticalAdditive(max_iter=3), live=True, then=predicted),
    "hyfdca, predicted": Case(lambda: fs.HyFDCA(rounds=2), then=predicted),
    "hyfdca, horizontal": Case(lambda: fs.HyFDCA(rounds=2), "horizontal"),
    "network, predicted": Case(lambda: fs.SplitNN(epochs=1, width=4), then=predicted),
    "network, lattice": Case(lambda: fs.SplitNN(epochs=1, embedding=2, protection="lattice"), then=predicted),
    "network, open, predicted": Case(
        lambda: fs.SplitNN(epochs=1, embedding=2, protection="open"), then=predicted
    ),
    "network, label_epsilon": Case(lambda: fs.SplitNN(epochs=1, width=4, label_epsilon=2.0)),
    "fedsdg": Case(lambda: fs.FedSDG(penalty=0.01, epochs=1, refit_epochs=1)),
    "stochastic_gate": Case(lambda: fs.StochasticGate(penalty=0.01, epochs=1, refit_epochs=1)),
    "stochastic_gate, open": Case(
        lambda: fs.StochasticGate(penalty=0.01, epochs=1, refit_epochs=1, protection="open")
    ),
    "less_vfl": Case(lambda: fs.LessVFL(pretrain_epochs=1, epochs=1, stage_epochs=1, width=4)),
    "less_vfl, open": Case(
        lambda: fs.LessVFL(pretrain_epochs=1, stage_epochs=1, protection="open", screen=True, embedding=2)
    ),
    "local_lasso": Case(lambda: fs.LocalLasso(pretrain_epochs=1, epochs=1, stage_epochs=1)),
    "vflfs": Case(lambda: fs.VFLFS(n_features=2, epochs=1, pretrain_epochs=1)),
    "vertical_flafe, noise": Case(lambda: fs.VerticalFLAFE(**SMALL, **noisy())),
    "vertical_flafe, forest": Case(lambda: fs.VerticalFLAFE(**SMALL, importance="forest")),
    "vertical_flafe, forest, noise": Case(lambda: fs.VerticalFLAFE(**SMALL, importance="forest", **noisy())),
    "flafe, statistics, noise": Case(lambda: fs.VerticalFLAFE(**SMALL, protection="statistics", **noisy())),
    "fed_linear, predicted": Case(fs.FedLinear, "horizontal", then=predicted),
    "fed_linear, open": Case(lambda: fs.FedLinear(protection="open", rounds=20), "horizontal", then=predicted),
    "fed_iife, noise": Case(lambda: fs.FedIIFE(n_pairs=2, max_features=2, **noisy()), "horizontal"),
    "fed_iife, ksg, open": Case(
        lambda: fs.FedIIFE(
            n_pairs=2, max_features=2, synergy="interaction", scoring="fedavg", functions="paper", protection="open"
        ),
        "horizontal",
    ),
    "feature_election, noise": Case(lambda: fs.FeatureElection(epsilon=5.0), "horizontal"),
    "feature_election, blocks": Case(
        lambda: fs.FeatureElection(method="mutual_information", epsilon=5.0, n_blocks=5), "horizontal"
    ),
    "feature_election, open": Case(lambda: fs.FeatureElection(protection="open"), "horizontal"),
    "sffs, screened": Case(lambda: fs.SFFS(n_features=2, screen=2)),
    "vertical_flafe, open": Case(lambda: fs.VerticalFLAFE(**SMALL, protection="open")),
    "fed_iife, open": Case(lambda: fs.FedIIFE(n_pairs=2, max_features=2, protection="open"), "horizontal"),
    "fed_iife, ksg": Case(lambda: fs.FedIIFE(n_pairs=2, max_features=2, synergy="interaction"), "horizontal"),
    "feature_election, open, noise": Case(lambda: fs.FeatureElection(epsilon=5.0, protection="open"), "horizontal"),
    "feature_election, open, blocks": Case(
        lambda: fs.FeatureElection(method="mutual_information", epsilon=5.0, n_blocks=5, protection="open"),
        "horizontal",
    ),
    "secureboost, by id": Case(partial(fs.SecureBoostClassifier, **OPENED), then=by_id),
    "woe": Case(lambda: fs.InformationValue(n_features=1, n_bins=3, woe="monotone", woe_digits=1)),
    "correlation": Case(then=lambda _, fed: fs.correlation(fed, kind="spearman", open_tables=True)),
    "vif": Case(then=lambda _, fed: fs.vif(fed, open_tables=True)),
    "significance": Case(then=lambda _, fed: fs.significance(fed, open_tables=True)),
    "significance, logistic": Case(
        then=lambda _, fed: fs.significance(fed, model="logistic", open_scores=True, open_tables=True)
    ),
    "psi": Case(then=lambda _, fed: fs.psi(fed, by="bank.signal", at=0.0)),
    "value": Case(then=lambda _, fed: fs.value(fed, folds=2, null=True), live=True),
    "evaluate": Case(
        then=lambda _, fed: fs.evaluate(
            fed, fs.InformationValue(n_features=2), fs.SecureBoostClassifier(**OPENED), cv=2, nulls=False,
            random_draws=1
        )
    ),
}  # fmt: skip


def sites_of(case: Case) -> dict[str, Site]:
    found = tables()
    if case.partition == "horizontal":
        bank = found["bank"].to_polars().to_pandas().assign(id=found["bank"].ids)
        found = {
            name: fs.Table.read(bank.iloc[part].reset_index(drop=True), id="id", label="outcome", name=name)
            for name, part in (("bank", slice(0, None, 2)), ("shop", slice(1, None, 2)))
        }
    sites: dict[str, Site] = {name: PolicySite(name, table, policy(**RULES)) for name, table in found.items()}
    for site in sites.values():
        site.workers = 1  # each thread's stack is 8 MB of addresses, which are counted
    introduce(sites)
    return sites


def fit(case: Case, transport: Transport) -> None:
    made = case.make()
    if case.partition == "horizontal":
        fed = Federation(transport, ["bank", "shop"], active=None, partition="horizontal")
    else:
        fed = align(Federation(transport, ["bank", "shop"], active="bank"), matching=case.matching)
    if made is not None:
        made.fit(fed)
    if case.then is not None:
        case.then(made, fed)
