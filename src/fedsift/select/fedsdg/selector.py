"""FedSDG-FS: stochastic dual gates, learned while a split network trains. The number of features is found, not given.

Li et al. 2023. (1) Encrypted Gini impurities begin the gates. (2) A split network trains with a clipped Gaussian gate
on every column and every embedding component, and a price lambda on the expected number of open gates. (3) A column is
selected if its gate's mean is positive at the end. (4) The network is fitted anew on the selected columns.

Departures: noise is drawn for each row instead of once a batch (lower variance of the same gradient); Adam at 0.003
(the paper's 0.03 with lambda 0.1 closes every gate); ``penalty="auto"`` chooses lambda by the validation score of the
*refitted* network on a part of the training rows, the fewest columns within one standard error of the best; impurities
are scaled to ``init_range`` over all parties.

``protection="shares"`` (the default) is ours, because in Algorithms 2 and 3 a party reads every label from the
gradients of its embedding: one network of sines stays on shares from end to end, the coordinator learns the gates from
sums over rows and draws them as bits (``shared_training.py``). It has no embeddings, so no gates on them. With lambda
"auto" a second look at the columns found and the best Gini starts follows (``_second_look``). Search and refit go the
same way. ``"lattice"`` is Algorithms 2 and 3 under ciphertexts, ``"open"`` the same in the clear, for research.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedsift.core.federation import Federation
from fedsift.core.operation import together
from fedsift.crypto.additive.keys import SCHEMES
from fedsift.errors import ParameterError
from fedsift.models.splitnn.gates import importance_to_mu
from fedsift.models.splitnn.layers.choice import check_neutral, check_protection, grown_batch, own_networks, refit_batch
from fedsift.models.splitnn.model import SplitNN, seed_of
from fedsift.models.splitnn.settings import (
    BottomSettings,
    Options,
    TopSettings,
    check_label_epsilon,
    note_label_epsilon,
)
from fedsift.models.splitnn.settings import GateSettings as OpenGates
from fedsift.models.splitnn.training import SplitRun, forget_model
from fedsift.mpc.column_scores import gini
from fedsift.select.base import Outcome, Selector, check_choice, check_number
from fedsift.select.fedsdg import gate_training, shared_training
from fedsift.select.fedsdg.gate_search import (
    SECOND_LOOK,
    GateRun,
    candidates,
    found_beside,
    found_on_path,
    note_few_rows,
    standard_error,
    warn_of_nothing,
)
from fedsift.select.fedsdg.gate_training import take_importance, told_gates
from fedsift.select.fedsdg.shared_training import GateSettings, train_gates

STEPS, SHARED_STEPS, LEAST_EPOCHS = 800, 400, 2
LAMBDAS = (0.001, 0.0025, 0.0035, 0.005, 0.007, 0.01)
SHARED_LAMBDAS = (0.0025, 0.005)  # a squared loss; the prices are one path
SECOND_LATER = 4
_LOWER = 3  # so often lower prices are tried: tables of thousands of columns and few rows need them


class FedSDG(Selector):
    """Stochastic dual gates (FedSDG-FS).

    Parameters
    ----------
    protection : ``"shares"`` (default): no party sees a gradient, an embedding or a weight; the coordinator deals the
        randomness and must be neutral. ``"lattice"``: the paper's layer under ciphertexts between the parties alone,
        for two organisations of which one runs the coordinator; a party sees the gradients of its embedding, which tell
        about labels. ``"open"``: in the clear, for research.
    width : sines of the network on shares.
    penalty : price of an open gate, or ``"auto"``: the one of ``penalties`` whose refitted network validates best.
        Where it is the lowest and leaves less than half of the columns, lower ones are tried too.
    gates : not on shares: ``"dual"`` (columns and embedding components) or ``"input"`` (columns only).
    init : ``"gini"`` (encrypted impurities, scaled to ``init_range``) or ``"half"`` (all gates at 0.5).
    sigma : deviation of a gate's noise.
    epochs : of the gated training; ``"auto"``: so many that gates take 800 steps, whatever the number of rows.
    refit_epochs, batch_size, learning_rate, refit_decay : of the refit (up to 20 on shares, half in the search, else
        40), of both (128 rows, on shares 64 to 1,024 by the table; plain steps there, else Adam at 0.003), its decay.
    validation : share of the training rows that chooses lambda.
    false_discovery : not on shares: estimate the share of false finds by a second run with a shuffled copy of every
        column.
    hidden, embedding, top_hidden : not on shares: the network, by default the paper's: d -> 100 -> 100, top -> 50 ->
        classes.
    label_epsilon : differential privacy of each label against everybody but its holder, by a randomised copy of the
        labels (``core/labels.py``); no privacy of columns. ``None``: exact labels.
    label_range : with it, for a number as label: (low, high), public, to which it is clipped.
    n_bins, min_cell, scheme : of the impurities, as in GiniFilter. trace_every : not on shares: epochs between looks.
    interactive_rate : of ``"open"``: plain gradient steps of this size for the layer that meets the embeddings, as
        under ciphertexts, where it is 2^-4 (``None``: Adam).

    Examples
    --------
    >>> import fedsift as fs
    >>> from sklearn.datasets import load_iris
    >>> fed = fs.Federation.split(*load_iris(return_X_y=True, as_frame=True), parties=["bank", "shop"])
    >>> sorted(fs.FedSDG(penalty=0.1, epochs=2, refit_epochs=1).fit(fed).selected_)
    ['bank', 'shop']
    """

    name = "fedsdg"
    paper = "Li et al. 2023, FedSDG-FS (Algorithms 1 to 3)"
    leaks = (
        "coordinator: sizes and label counts of shuffled, unnamed bins, the gate of each column, sums over rows that "
        "move the gates, losses and validation scores; parties: when a column of theirs leaves the conversation (which "
        "take part in a block of batches is drawn by lot); label holder: outputs for the validation rows; not on "
        "shares also: gradients of embeddings (which tell about labels) to their party, and in the open form "
        "embeddings (which tell about rows) to the label holder"
    )
    operations = together(SplitNN.operations, shared_training.OPERATIONS, gate_training.OPERATIONS, gini.OPERATIONS)
    cell_parameters: ClassVar[tuple[str, ...]] = ("min_cell",)
    epsilon_parameters: ClassVar[tuple[str, ...]] = ("label_epsilon",)
    told_bits: ClassVar[float] = 56.0  # when a column leaves: one of some 110 blocks, in at most eight trainings
    repeats_within: ClassVar[float] = 1e-3  # under ciphertexts each activation carries fresh noise of 2^-20

    def __init__(
        self,
        *,
        penalty: float | str = "auto",
        penalties: tuple[float, ...] | None = None,
        gates: str = "dual",
        init: str = "gini",
        init_range: tuple[float, float] = (0.3, 0.7),
        sigma: float = 0.5,
        epochs: int | str = "auto",
        refit_epochs: int | None = None,
        refit_decay: float = 1e-3,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation: float = 0.2,
        false_discovery: bool = False,
        hidden: tuple[int, ...] = (100,),
        embedding: int = 100,
        top_hidden: tuple[int, ...] = (50,),
        n_bins: int = 8,
        min_cell: int = 10,
        trace_every: int = 10,
        interactive_rate: float | None = None,
        protection: str = "shares",
        width: int = 16,
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        scheme: str = "auto",
        random_state: object = 0,
    ):
        self.penalty = penalty
        self.penalties = penalties
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
        self.n_bins = n_bins
        self.min_cell = min_cell
        self.trace_every = trace_every
        self.interactive_rate = interactive_rate
        self.protection = protection
        self.width = width
        self.label_epsilon = label_epsilon
        self.label_range = label_range
        self.scheme = scheme
        self.random_state = random_state

    def _check(self, fed: Federation) -> None:
        for name, choices in (("gates", ("dual", "input")), ("init", ("gini", "half")), ("scheme", SCHEMES)):
            check_choice(name, getattr(self, name), choices)
        for name in ("embedding", "trace_every", "width"):
            check_number(name, getattr(self, name), 1, whole=True)
        for name in ("batch_size", "refit_epochs"):
            check_number(name, getattr(self, name), 1, whole=True, none=True)
        if self.epochs != "auto":
            check_number("epochs", self.epochs, 1, whole=True)
        check_number("validation", self.validation, 0.05, 0.5)
        check_number("sigma", self.sigma, 1e-3)
        check_number("learning_rate", self.learning_rate, 1e-9, none=True)
        if check_protection(self.protection) == "shares" and self.false_discovery:
            raise ParameterError("false_discovery trains copies of columns, with protection='open' or 'lattice' only")
        if self.penalty != "auto":
            check_number("penalty", self.penalty, 0.0)
        elif self.penalties is not None and (not self.penalties or any(not value >= 0 for value in self.penalties)):
            raise ParameterError(f"penalties must be numbers of at least 0; got {self.penalties!r}")
        if len(self.init_range) != 2 or not self.init_range[0] <= self.init_range[1]:
            raise ParameterError(f"init_range must be (low, high); got {self.init_range!r}")
        check_label_epsilon(fed, self.label_epsilon, self.label_range)
        if self.protection == "shares":
            check_neutral(fed, type(self).__name__)

    def _select(self, fed: Federation) -> Outcome:
        tried, start = list[GateRun](), dict[str, np.ndarray]()
        if self.penalty == "auto":
            chosen, tried = self._search(fed)
        else:
            start = self._begin_gates(fed)
            chosen = self._gate_runs(fed, [float(self.penalty)], start)[0]
        self._refit(fed, chosen.kept)
        note_label_epsilon(fed, self.label_epsilon)
        details = {
            "lambda": chosen.price, "path": [run.as_step() for run in tried], "gates_by_epoch": chosen.trace,
            "components_open": chosen.components_open, "share_kept": chosen.count / sum(fed.n_columns.values()),
            **chosen.story,
        }  # fmt: skip
        if self.false_discovery:
            details["false_discovery_rate"] = self._false_discovery(fed, chosen.price, start)
        return Outcome(chosen.scores, chosen.kept, details)

    def _search(self, fed: Federation) -> tuple[GateRun, list[GateRun]]:
        """Gates at every lambda on a part of the rows; the refitted network decides on the other part.

        Where the lowest price is chosen and leaves few columns, the next ones to try are lower.
        """
        part, held = fed.rows(train=1 - self.validation, random_state=seed_of(self.random_state))
        note_few_rows(fed, held)
        start = self._begin_gates(part)
        grid = self.penalties or (SHARED_LAMBDAS if self.protection == "shares" else LAMBDAS)
        prices, many = sorted(float(value) for value in grid), sum(fed.n_columns.values()) / 2
        again = self.protection == "shares" and self.init == "gini"
        runs: list[GateRun] = []
        scores: dict[tuple[int, ...], float] = {}
        for _ in range(1 + _LOWER):
            found = self._gate_runs(part, prices, start)
            if again:
                found = self._second_look(part, found, start)
            runs = found + runs
            chosen = self._judged(fed, part, held, runs, scores)
            lowest = runs[0].price
            if chosen.price > lowest or chosen.count > many or not lowest:
                break
            if again and 2 * chosen.count < SECOND_LOOK:  # the second look was offered more than it wanted
                break
            prices = [lowest / 10, lowest / 3]
        return chosen, runs

    def _second_look(self, part: Federation, found: list[GateRun], start: dict[str, np.ndarray]) -> list[GateRun]:
        """Gates anew on the columns that were found and the best beginnings among the others.

        Among hundreds of inputs a column that tells by its square, or with another one, has first weights too small
        to be learned before its gate closes; among few it has not.
        """
        places = candidates(found, start)
        if places is None:
            return found
        prices = [0.4 * found[0].price, found[-1].price]
        view = part.view(columns={name: np.flatnonzero(mask) for name, mask in places.items()})
        half = {name: np.full(int(mask.sum()), 0.5) for name, mask in places.items()}
        settings = replace(self._gate_settings(part.n_rows, 0.5), later=SECOND_LATER)
        paths = train_gates(view, prices[::-1], half, settings)
        closed = {name: np.minimum(values, -1e-9) for name, values in found[0].scores.items()}
        return [found_on_path(path, closed, places) for path in reversed(paths)]

    def _judged(
        self, fed: Federation, part: Federation, held: Federation, runs: list[GateRun],
        scores: dict[tuple[int, ...], float],
    ) -> GateRun:  # fmt: skip
        """The run with the fewest columns within one standard error of the best. ``scores`` keeps what was refitted.

        Refits go from few columns to many, and end when one is clearly worse than the best so far.
        """
        best, going = float("-inf"), True
        for run in fed.track(runs[::-1], "lambda", at_most=True):
            if going:
                if run.columns not in scores:
                    scores[run.columns] = self._refit_score(part, held, run.kept)
                best = max(best, scores[run.columns])
                going = scores[run.columns] >= best - 2 * standard_error(best, held)
            run.validation = scores.get(run.columns, float("-inf"))
        good = [run for run in runs if run.validation >= best - standard_error(best, held)]
        fewest = min(good, key=lambda run: run.count or np.inf)
        alike = [run for run in good if run.count and run.columns == fewest.columns]
        return alike[-1] if len(alike) > 2 else fewest  # three prices that agree: lower ones need not be tried

    def _begin_gates(self, fed: Federation) -> dict[str, np.ndarray]:
        """Algorithm 1: encrypted labels out, masked counts back; where gates begin. On shares no party hears it."""
        if self.init != "gini":
            return {name: np.full(count, 0.5) for name, count in fed.n_columns.items()}
        impurities = gini.encrypted_gini(fed, n_bins=self.n_bins, min_cell=self.min_cell, scheme=self.scheme)
        joined = np.concatenate(list(impurities.values()))
        low, high = (float(end) for end in self.init_range)
        best, worst = float(joined.min()), float(joined.max())
        if self.protection != "shares":
            each = {name: {"impurity": values} for name, values in impurities.items()}
            fed.ask(take_importance, to=fed.parties, each=each, low=low, high=high, best=best, worst=worst)
        return {n: importance_to_mu(each, low, high, best, worst).astype(np.float64) for n, each in impurities.items()}

    def _settings(self, prices: list[float], copies: bool) -> tuple[BottomSettings, TopSettings]:
        """Settings of the halves. Several prices: as many networks side by side, which begin alike."""
        one = len(prices) == 1
        seed, size, rate = seed_of(self.random_state), self._batch_size(0), self._rate
        model = "dense" if one else "stacked dense"
        more: Options = {} if one else {"copies": len(prices)}
        gates = OpenGates(self.sigma, prices[0] if one else prices, self.gates == "dual", self.init, rate)
        options: Options = {"hidden": list(self.hidden), **more}
        bottom = BottomSettings(seed, size, rate, model, options, gates=gates, shadows=int(copies))
        above: Options = {"hidden": list(self.top_hidden), **more}
        return bottom, TopSettings(seed, size, rate, model, above, interactive=self.interactive_rate)

    def _batch_size(self, rows: int) -> int:
        grown = grown_batch(128, rows, LEAST_EPOCHS) if self.protection == "shares" else 128
        return self.batch_size or grown

    @property
    def _rate(self) -> float:
        usual = shared_training.WEIGHT_RATE if self.protection == "shares" else 0.003
        return usual if self.learning_rate is None else self.learning_rate

    def _refit_epochs(self, rows: int) -> int:
        """On shares 20, fewer where the rows are many: 1,600 steps, and three epochs at least."""
        usual = int(np.clip(1600 // np.ceil(rows / 128) + 1, 3, 20)) if self.protection == "shares" else 40
        return self.refit_epochs or usual

    def _epochs(self, rows: int) -> int:
        """A gate closes by steps, not by epochs: few rows need more epochs."""
        if self.epochs != "auto":
            return int(self.epochs)
        steps, least = (SHARED_STEPS, LEAST_EPOCHS) if self.protection == "shares" else (STEPS, 20)
        return int(np.clip(np.ceil(steps / np.ceil(rows / self._batch_size(rows))), least, 400))

    def _gate_settings(self, rows: int, share: float = 1.0) -> GateSettings:
        return GateSettings(
            max(1, round(share * self._epochs(rows))), self._batch_size(rows), self.width, self.sigma,
            seed_of(self.random_state), self._rate, self.trace_every,
        )  # fmt: skip

    def _gate_runs(
        self, fed: Federation, prices: list[float], start: dict[str, np.ndarray], copies: bool = False
    ) -> list[GateRun]:
        """Train with gates: one path over the prices on shares, else side by side where the form allows it."""
        if self.protection == "shares":
            paths = train_gates(fed, sorted(prices, reverse=True), start, self._gate_settings(fed.n_rows))
            closed = {name: np.zeros(count) for name, count in fed.n_columns.items()}
            places = {name: np.ones(count, dtype=bool) for name, count in fed.n_columns.items()}
            return [found_on_path(path, closed, places) for path in reversed(paths)]
        kind = own_networks(self.protection)
        if len(prices) > 1 and kind is not SplitRun:
            return [run for price in prices for run in self._gate_runs(fed, [price], start, copies)]
        run = kind.start(fed, f"gates-{secrets.token_hex(4)}", self.embedding, *self._settings(prices, copies))
        trace: list[tuple[int, dict[str, Any]]] = []
        epochs = self._epochs(fed.n_rows)

        def observe(epoch: int) -> None:
            if (epoch + 1) % self.trace_every == 0 or epoch + 1 == epochs:
                trace.append((epoch + 1, told_gates(fed, run, len(prices))))

        run.train(epochs, observe=observe)
        fed.ask(forget_model, to=fed.parties, model=run.model)
        return [found_beside(fed, run, trace, place, price) for place, price in enumerate(prices)]

    def _network(self, rows: int) -> SplitNN:
        if self.protection == "shares":
            return SplitNN(
                width=2 * self.width, epochs=self._refit_epochs(rows), random_state=self.random_state,
                batch_size=min(self.batch_size or rows, grown_batch(128, rows)),
            )  # fmt: skip
        return SplitNN(
            protection=self.protection, bottom_options={"hidden": list(self.hidden)},
            top_options={"hidden": list(self.top_hidden)}, embedding=self.embedding, epochs=self._refit_epochs(rows),
            batch_size=self._batch_size(rows), learning_rate=self._rate, weight_decay=self.refit_decay,
            random_state=self.random_state,
        )  # fmt: skip

    def _refit_score(self, part: Federation, held: Federation, kept: dict[str, np.ndarray]) -> float:
        """Validation score of a network of the selected columns alone; minus infinity without any."""
        columns = {name: np.flatnonzero(mask) for name, mask in kept.items()}
        if not any(len(places) for places in columns.values()):
            return float("-inf")
        network = self._network(part.n_rows)
        if self.protection == "shares":  # bytes: to compare prices half of the epochs and of the width will do
            network.epochs, network.width = max(1, self._refit_epochs(part.n_rows) // 2), self.width
        network.model_ = f"refit-{secrets.token_hex(4)}"
        with part.view(columns=columns).session() as inner:
            run = network._start(inner)
            run.train(network._epochs(inner))
            return run.score(held.view(columns=columns))

    def _refit(self, fed: Federation, kept: dict[str, np.ndarray]) -> None:
        """The network of the selected columns, on all training rows; ``network_`` predicts with it."""
        if empty := not any(mask.any() for mask in kept.values()):
            warn_of_nothing(fed, type(self).__name__, self.protection == "shares")
        if self.protection == "shares" or not empty:
            network, columns = self._network(fed.n_rows), int(sum(mask.sum() for mask in kept.values()))
            if self.protection == "shares":
                network.batch_size = refit_batch(self.batch_size, columns, fed.n_rows, self._refit_epochs(fed.n_rows))
            self.network_ = network.fit_columns(fed, kept, "fedsdg")

    def _false_discovery(self, fed: Federation, price: float, start: dict[str, np.ndarray]) -> float:
        """Open copies to open columns, in a run where every column competes with a shuffled copy of itself."""
        run = self._gate_runs(fed, [price], start, copies=True)[0]
        return float(min(1.0, run.copies_open / max(1, run.count)))
