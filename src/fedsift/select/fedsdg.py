"""FedSDG-FS: stochastic dual gates, learned while a split network trains. The number of features is found, not given.

Li et al. 2023. (1) Encrypted Gini impurities begin the gates. (2) A split network trains with a clipped Gaussian gate
on every column and every embedding component, and a price lambda on the expected number of open gates. (3) A column is
selected if its gate's mean is positive at the end. (4) The network is fitted anew on the selected columns.

Departures: noise is drawn for each row instead of once a batch (lower variance of the same gradient); Adam at 0.003
(the paper's 0.03 with lambda 0.1 closes every gate); ``lambda_="auto"`` chooses lambda by the validation score of the
*refitted* network on a part of the training rows; impurities are scaled to ``init_range`` over all parties. ``secure``
trains through the encrypted interactive layer (Algorithms 2 and 3).
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from fedsift.errors import ParameterError
from fedsift.federation import Federation
from fedsift.protocols.gate_training import read_gates, take_importance
from fedsift.protocols.split_training import SplitRun, forget_model, keep_model
from fedsift.protocols.splitnn import SplitNN, seed_of
from fedsift.secure.additive import SCHEMES
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.gini import encrypt_one_hot, masked_impurities, open_impurities

LAMBDAS = (0.001, 0.002, 0.003, 0.005, 0.008)


class FedSDG(Selector):
    """Stochastic dual gates (FedSDG-FS).

    Parameters
    ----------
    lambda_ : price of an open gate, or ``"auto"``: the one of ``lambdas`` whose refitted network validates best.
    gates : ``"dual"`` (columns and embedding components) or ``"input"`` (columns only).
    init : ``"gini"`` (encrypted impurities, scaled to ``init_range``) or ``"half"`` (all gates at 0.5).
    sigma : deviation of a gate's noise.
    epochs, refit_epochs, batch_size, learning_rate, refit_decay : of the gated training and of the refit (Adam).
    validation : share of the training rows that chooses lambda.
    false_discovery : estimate the share of false finds by a second run with a shuffled copy of every column.
    hidden, embedding, top_hidden : the network, by default the paper's: d -> 100 -> 100, top -> 50 -> classes.
    interactive_rate : plain gradient steps of this size for the layer that meets the embeddings (``None``: Adam).
    secure : train the gates through the encrypted interactive layer (its rate is 2^-4). Needs ``lambda_`` as a number,
        and refits no network: that would send embeddings in the clear.
    """

    paper = "Li et al. 2023, FedSDG-FS (Algorithms 1 to 3)"
    leaks = (
        "label holder: one impurity a column; in plain mode embeddings (which tell about rows) and gradients (which "
        "tell about labels) travel in the clear; coordinator: the gates"
    )

    def __init__(
        self,
        *,
        lambda_: float | str = "auto",
        lambdas: tuple[float, ...] = LAMBDAS,
        gates: str = "dual",
        init: str = "gini",
        init_range: tuple[float, float] = (0.3, 0.7),
        sigma: float = 0.5,
        epochs: int = 100,
        refit_epochs: int = 60,
        refit_decay: float = 1e-3,
        batch_size: int = 128,
        learning_rate: float = 0.003,
        validation: float = 0.2,
        false_discovery: bool = False,
        hidden: tuple[int, ...] = (100,),
        embedding: int = 100,
        top_hidden: tuple[int, ...] = (50,),
        bins: int = 8,
        min_cell: int = 5,
        trace_every: int = 10,
        interactive_rate: float | None = None,
        secure: bool = False,
        scheme: str = "auto",
        random_state: Any = 0,
    ):
        self.lambda_ = lambda_
        self.lambdas = lambdas
        self.gates = gates
        self.init = init
        self.init_range = init_range
        self.sigma = sigma
        self.epochs = epochs
        self.refit_epochs = refit_epochs
        self.refit_decay = refit_decay
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation = validation
        self.false_discovery = false_discovery
        self.hidden = hidden
        self.embedding = embedding
        self.top_hidden = top_hidden
        self.bins = bins
        self.min_cell = min_cell
        self.trace_every = trace_every
        self.interactive_rate = interactive_rate
        self.secure = secure
        self.scheme = scheme
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        check_choice("gates", self.gates, ("dual", "input"))
        check_choice("init", self.init, ("gini", "half"))
        check_choice("scheme", self.scheme, SCHEMES)
        for name in ("epochs", "refit_epochs", "batch_size", "embedding", "trace_every"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("validation", self.validation, 0.05, 0.5)
        check_number("sigma", self.sigma, 1e-3)
        check_number("learning_rate", self.learning_rate, 1e-9)
        if self.secure and self.lambda_ == "auto":
            raise ParameterError(
                "secure=True needs a number as lambda_: the search refits networks in the clear; find it with "
                "secure=False on data that may be shared, or try e.g. lambda_=0.003"
            )
        if self.lambda_ != "auto":
            check_number("lambda_", self.lambda_, 0.0)
        elif not self.lambdas or any(not value >= 0 for value in self.lambdas):
            raise ParameterError(f"lambdas must be numbers of at least 0; got {self.lambdas!r}")
        if len(self.init_range) != 2 or not self.init_range[0] <= self.init_range[1]:
            raise ParameterError(f"init_range must be (low, high); got {self.init_range!r}")

    def _select(self, fed: Federation) -> Outcome:
        if self.lambda_ == "auto":
            chosen, path = self._search(fed)
        else:
            if self.init == "gini":
                self._begin_gates(fed)
            chosen, path = self._gate_run(fed, float(self.lambda_)), []
        if not self.secure:
            self._refit(fed, chosen["kept"])
        details = {
            "lambda": chosen["lambda"],
            "path": path,
            "gates_by_epoch": chosen["trace"],
            "components_open": chosen["components_open"],
            "share_kept": float(np.mean(np.concatenate(list(chosen["kept"].values())))),
            "bytes_by_epoch": chosen["bytes_by_epoch"],
            "loss_curve": chosen["loss_curve"],
        }
        if self.false_discovery:
            details["false_discovery_rate"] = self._false_discovery(fed, chosen["lambda"])
        return Outcome(chosen["scores"], chosen["kept"], details)

    def _search(self, fed: Federation) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Gates at every lambda on a part of the rows; the refitted network decides on the other part."""
        part, held = fed.rows(train=1 - self.validation, random_state=seed_of(self.random_state))
        if self.init == "gini":
            self._begin_gates(part)
        runs, path = [], []
        for value in sorted(self.lambdas):
            run = self._gate_run(part, float(value))
            run["score"] = self._refit_score(part, held, run["kept"])
            runs.append(run)
            path.append({"lambda": value, "columns": run["count"], "validation": run["score"]})
            if run["count"] == 0:
                break
        margin = 0.5 * np.sqrt(0.25 / held.n_rows) if fed.task == "classification" else 0.01
        best = max(run["score"] for run in runs)
        good = [run for run in runs if run["score"] >= best - margin]
        return min(good, key=lambda run: run["count"] or np.inf), path

    def _begin_gates(self, fed: Federation) -> None:
        """Algorithm 1: encrypted labels out, masked counts back, one impurity a column to its owner."""
        labels = fed.ask(encrypt_one_hot, to=fed.active, scheme=self.scheme, task=fed.asked_task, bins=self.bins)
        replies = fed.ask(masked_impurities, to=fed.passive, bins=self.bins, min_cell=self.min_cell, **labels)
        impurities = fed.in_order(
            fed.ask(
                open_impurities, to=fed.active, replies=replies, bins=self.bins, min_cell=self.min_cell,
                scheme=self.scheme, task=fed.asked_task,
            )
        )  # fmt: skip
        joined = np.concatenate(list(impurities.values()))
        low, high = self.init_range
        each = {name: {"impurity": values} for name, values in impurities.items()}
        fed.ask(
            take_importance, to=fed.parties, each=each, low=float(low), high=float(high),
            best=float(joined.min()), worst=float(joined.max()),
        )  # fmt: skip

    def _settings(self, price: float, copies: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        common = {
            "seed": seed_of(self.random_state), "batch_size": self.batch_size, "rate": self.learning_rate,
            "model": "dense",
        }  # fmt: skip
        gates = {
            "sigma": self.sigma, "price": price, "embedding": self.gates == "dual", "init": self.init,
            "rate": self.learning_rate,
        }  # fmt: skip
        bottom = {**common, "options": {"hidden": list(self.hidden)}, "gates": gates, "shadows": int(copies)}
        return bottom, {**common, "options": {"hidden": list(self.top_hidden)}, "interactive": self.interactive_rate}

    def _gate_run(self, fed: Federation, price: float, copies: bool = False) -> dict[str, Any]:
        """Train with gates once; which columns are open at the end."""
        bottom, top = self._settings(price, copies)
        run = self._start(fed, bottom, top)
        trace: list[dict[str, Any]] = []
        sizes: list[int] = []

        def observe(epoch: int) -> None:
            sizes.append(fed.ledger.bytes())
            if (epoch + 1) % self.trace_every == 0 or epoch + 1 == self.epochs:
                read = fed.ask(read_gates, to=list(run.widths), model=run.model)
                trace.append({"epoch": epoch + 1, "gates": {name: r["columns"] for name, r in read.items()}})
                trace[-1]["_read"] = read

        start = fed.ledger.bytes()
        run.train(self.epochs, observe=observe)
        fed.ask(forget_model, to=fed.parties, model=run.model)
        last = trace[-1]["_read"]
        for entry in trace:
            entry.pop("_read")
        empty = {name: np.zeros(count) for name, count in fed.n_columns.items()}
        scores = {n: last[n]["columns"].astype(np.float64) if n in last else empty[n] for n in fed.parties}
        kept = {name: values > 0 for name, values in scores.items()}
        return {
            "lambda": price, "scores": scores, "kept": kept, "count": int(sum(k.sum() for k in kept.values())),
            "components_open": {name: int((r["components"] > 0).sum()) for name, r in last.items()},
            "copies_open": int(sum((r["copies"] > 0).sum() for r in last.values())),
            "trace": trace, "loss_curve": run.loss_curve,
            "bytes_by_epoch": np.diff([start, *sizes]).tolist(),
        }  # fmt: skip

    def _start(self, fed: Federation, bottom: dict[str, Any], top: dict[str, Any]) -> SplitRun:
        name = f"gates-{secrets.token_hex(4)}"
        if not self.secure:
            return SplitRun.start(fed, name, self.embedding, bottom, top)
        from fedsift.protocols.secure_layer import SecureRun

        return SecureRun.start(fed, name, self.embedding, {**bottom, "scheme": self.scheme}, top)

    def _network(self) -> SplitNN:
        return SplitNN(
            bottom_options={"hidden": list(self.hidden)}, top_options={"hidden": list(self.top_hidden)},
            embedding=self.embedding, epochs=self.refit_epochs, batch_size=self.batch_size,
            learning_rate=self.learning_rate, weight_decay=self.refit_decay, random_state=self.random_state,
        )  # fmt: skip

    def _refit_score(self, part: Federation, held: Federation, kept: dict[str, np.ndarray]) -> float:
        """Validation score of a network of the selected columns alone; minus infinity without any."""
        columns = {name: np.flatnonzero(mask) for name, mask in kept.items()}
        if not any(len(places) for places in columns.values()):
            return float("-inf")
        view = part.view(columns=columns)
        network = self._network()
        network.model_ = f"refit-{secrets.token_hex(4)}"
        run = network._start(view)
        run.train(self.refit_epochs)
        score = run.score(held.view(columns=columns))
        view.ask(forget_model, to=view.parties, model=network.model_)
        return score

    def _refit(self, fed: Federation, kept: dict[str, np.ndarray]) -> None:
        """The network of the selected columns, on all training rows; ``network_`` predicts with it."""
        columns = {name: np.flatnonzero(mask) for name, mask in kept.items()}
        if not any(len(places) for places in columns.values()):
            return
        self.network_ = self._network()
        self.network_.model_ = f"fedsdg-{secrets.token_hex(4)}"
        run = self.network_._start(fed.view(columns=columns))
        run.train(self.refit_epochs)
        fed.ask(keep_model, to=fed.parties, model=self.network_.model_)
        self.network_.task_, self.network_.widths_ = fed.task, run.widths

    def _false_discovery(self, fed: Federation, price: float) -> float:
        """Open copies to open columns, in a run where every column competes with a shuffled copy of itself."""
        run = self._gate_run(fed, price, copies=True)
        return float(min(1.0, run["copies_open"] / max(1, run["count"])))
