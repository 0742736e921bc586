"""One gate without initialisation, on the columns only, starting at 0.5 (Yamada et al. 2020 over parties)."""

from __future__ import annotations

from typing import Any

from fedsift.models.splitnn.layers import choice
from fedsift.models.splitnn.training import forget_model, keep_model
from fedsift.select.fedsdg.gate_training import read_gates
from fedsift.select.fedsdg.selector import LAMBDAS, FedSDG


class StochasticGate(FedSDG):
    """One stochastic gate a column, no initialisation, no embedding gates: the paper's original-Gate."""

    name = "stochastic_gate"
    paper = "Yamada et al. 2020 (stochastic gates); baseline of FedSDG-FS"
    leaks = (
        "label holder: weighted activations of rows; others: gradients of their embeddings (which tell about labels); "
        "coordinator: the gates, validation scores; with secure=False embeddings travel in the clear"
    )
    operations = (*choice.TRAINING, keep_model, forget_model, read_gates)
    cell_parameters = ()

    def __init__(
        self,
        *,
        lambda_: float | str = "auto",
        lambdas: tuple[float, ...] = LAMBDAS,
        sigma: float = 0.5,
        epochs: int | str = "auto",
        refit_epochs: int = 40,
        refit_decay: float = 1e-3,
        batch_size: int = 128,
        learning_rate: float = 0.003,
        validation: float = 0.2,
        secure: bool | str = True,
        random_state: Any = 0,
    ):
        super().__init__(
            lambda_=lambda_, lambdas=lambdas, gates="input", init="half", sigma=sigma, epochs=epochs,
            refit_epochs=refit_epochs, refit_decay=refit_decay, batch_size=batch_size, learning_rate=learning_rate,
            validation=validation, secure=secure, random_state=random_state,
        )  # fmt: skip
