"""Split training as it was: first weights from the announced seed, embeddings up, a gradient for each row down.

``hide`` of ``split_training`` says what a mended run would not tell: ``"weights"`` (drawn in secret), ``"gradients"``
(rows exchanged by lot) or ``"embeddings"`` (noise in their place).
"""

from __future__ import annotations

import secrets

import numpy as np

from fedsift.core.operation import ANY, operation
from fedsift.models.splitnn.networks import build_model, derived_seed, torch_module


def standardised(party):
    values = np.column_stack([party.table.values(name) for name in party.columns])
    return ((values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-12)).astype(np.float32)


def rows_of(party, settings, epoch, start):
    order = np.random.default_rng(derived_seed(settings["seed"], "rows", epoch)).permutation(party.n_rows)
    return order[start : start + settings["batch_size"]]


@operation("leaky_networks.start_bottom", discloses="control", about="number of inputs", reply=ANY)
def start_bottom(party, *, model, settings, hide):
    torch = torch_module()
    seed = secrets.randbits(50) if hide == "weights" else derived_seed(settings["seed"], "bottom", party.name)
    matrix = torch.from_numpy(standardised(party))
    module = build_model("dense", matrix.shape[1], settings["width"], settings["options"], seed)
    optimiser = torch.optim.Adam(module.parameters(), lr=settings["rate"])
    party.state.update(matrix=matrix, module=module, optimiser=optimiser, settings=settings, hide=hide)
    return {"inputs": matrix.shape[1]}


@operation("leaky_networks.start_top", discloses="control", about="acknowledgement")
def start_top(party, *, model, widths, settings):
    torch = torch_module()
    seed = derived_seed(settings["seed"], "top")
    module = build_model("dense", sum(widths.values()), 2, settings["options"], seed)
    optimiser = torch.optim.Adam(module.parameters(), lr=settings["rate"])
    labels = torch.from_numpy(party.labels(task="classification").codes.astype(np.int64))
    party.state.update(top=module, top_optimiser=optimiser, widths=widths, labels=labels, settings=settings)


@operation("leaky_networks.bottom_round", discloses="plain", receives="plain", about="embeddings", reply=ANY)
def bottom_round(party, *, model, gradient=None, epoch=None, start=0):
    torch, state = torch_module(), party.state
    if gradient is not None:
        state["optimiser"].zero_grad()
        state["pending"].backward(torch.from_numpy(np.array(gradient)))
        state["optimiser"].step()
    if epoch is None:
        return None
    rows = rows_of(party, state["settings"], epoch, start)
    state["pending"] = state["module"](state["matrix"][torch.from_numpy(rows)])
    shown = state["pending"].detach().numpy()
    if state["hide"] == "embeddings":
        return np.random.default_rng(secrets.randbits(64)).standard_normal(shown.shape).astype(np.float32)
    return shown


@operation("leaky_networks.top_round", discloses="plain", receives="plain", about="gradients", reply=ANY)
def top_round(party, *, model, embeddings, epoch, start, hide):
    torch, state = torch_module(), party.state
    rows = torch.from_numpy(rows_of(party, state["settings"], epoch, start))
    parts = {name: torch.tensor(embeddings[name], requires_grad=True) for name in state["widths"]}
    loss = torch.nn.functional.cross_entropy(
        state["top"](torch.cat(list(parts.values()), dim=1)), state["labels"][rows]
    )
    state["top_optimiser"].zero_grad()
    loss.backward()
    state["top_optimiser"].step()
    gradients = {name: part.grad.numpy() for name, part in parts.items()}
    if hide == "gradients":
        generator = np.random.default_rng(secrets.randbits(64))
        gradients = {name: g[generator.permutation(len(g))] for name, g in gradients.items()}
    return {"gradients": gradients}


def split_training(epochs=3, embedding=32, hidden=48, hide="", seed=0, batch_size=64):
    """The conversation, as a function of the federation: every passive party has a half, the label holder the top."""

    def talk(fed):
        common = {"seed": seed, "batch_size": batch_size, "rate": 0.003, "model": "dense"}
        bottom = {**common, "options": {"hidden": [hidden]}, "width": embedding}
        top = {**common, "options": {"hidden": [16]}}
        with fed.session("leaky training", {"seed": seed}) as run:
            rows, model = run.n_rows, "network"
            run.ask(start_bottom, to=run.parties, model=model, settings=bottom, hide=hide)  # the holder is told too
            widths = dict.fromkeys(run.passive, embedding)
            run.ask(start_top, to=run.active, model=model, widths=widths, settings=top)
            sent = {name: {} for name in run.passive}
            for epoch in range(epochs):
                for start in range(0, rows, batch_size):
                    batch = {"model": model, "epoch": epoch, "start": start}
                    shown = run.ask(bottom_round, to=run.passive, each=sent, **batch)
                    answer = run.ask(top_round, to=run.active, embeddings=shown, hide=hide, **batch)
                    sent = {name: {"gradient": answer["gradients"][name]} for name in run.passive}
            run.ask(bottom_round, to=run.passive, each=sent, model=model)

    return talk
