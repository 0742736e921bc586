"""One gate without initialisation, on the columns only, starting at 0.5 (Yamada et al. 2020 over parties)."""

from __future__ import annotations

from fedsift.models.splitnn.model import SplitNN
from fedsift.select.fedsdg import gate_training, shared_training
from fedsift.select.fedsdg.selector import FedSDG


class StochasticGate(FedSDG):
    """One stochastic gate a column, no initialisation, no embedding gates: the paper's original-Gate."""

    name = "stochastic_gate"
    paper = "Yamada et al. 2020 (stochastic gates); baseline of FedSDG-FS"
    leaks = FedSDG.leaks.replace("one impurity and the gate", "the gate")
    operations = tuple(dict.fromkeys((*SplitNN.operations, *shared_training.OPERATIONS, *gate_training.OPERATIONS)))
    cell_parameters = ()

    def __init__(
        self,
        *,
        lambda_: float | str = "auto",
        lambdas: tuple[float, ...] | None = None,
        sigma: float = 0.5,
        epochs: int | str = "auto",
        refit_epochs: int | None = None,
        refit_decay: float = 1e-3,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        validation: float = 0.2,
        protection: str = "shares",
        width: int = 16,
        label_epsilon: float | None = None,
        label_range: tuple[float, float] | None = None,
        random_state: object = 0,
    ):
        super().__init__(
            lambda_=lambda_, lambdas=lambdas, gates="input", init="half", sigma=sigma, epochs=epochs,
            refit_epochs=refit_epochs, refit_decay=refit_decay, batch_size=batch_size, learning_rate=learning_rate,
            validation=validation, protection=protection, width=width, label_epsilon=label_epsilon,
            label_range=label_range, random_state=random_state,
        )  # fmt: skip
