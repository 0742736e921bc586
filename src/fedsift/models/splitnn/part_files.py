"""Files of a network's parts: what one party holds of it, weights and encoder, written and read at that party alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedsift.core.files import read_plain
from fedsift.core.party import Site
from fedsift.errors import DataError
from fedsift.models.splitnn.halves import Halves
from fedsift.models.splitnn.inputs import InputEncoder
from fedsift.models.splitnn.layers.shared_parts import Part
from fedsift.models.splitnn.networks import read_arrays, set_weights, weights_of, write_arrays
from fedsift.models.splitnn.party_networks import Bottom, Top
from fedsift.models.splitnn.settings import BottomSettings, TopSettings

FORMAT = "fedsift-splitnn"
VERSION = 3


def save_part(site: Site, model: str, path: str | Path, job: str) -> Path:
    """Write one party's halves (weights and encoder, no row) to a file of its own. Run at that party."""
    facts: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": model, "party": site.name, "job": job}
    arrays: dict[str, np.ndarray] = {}
    kept = site.models.part(model, object)
    if isinstance(kept, Part):
        facts["shares"], arrays = kept.plain(), kept.arrays()
        return write_arrays(path, facts, arrays)
    halves = site.models.part(model, Halves)
    bottom, top = halves.bottom, halves.top
    if bottom is not None:
        facts["bottom"] = {"settings": asdict(bottom.settings), "encoder": bottom.encoder.to_plain()}
        arrays |= {f"bottom/{k}": v for k, v in weights_of(bottom.module).items()}
    if top is not None:
        facts["top"] = {
            "settings": asdict(top.settings), "widths": top.widths, "task": top.task, "outputs": top.outputs,
            "classes": list(top.classes), "centre": top.centre, "spread": top.spread,
        }  # fmt: skip
        arrays |= {f"top/{k}": v for k, v in weights_of(top.module).items()}
    arrays |= {f"share of/{name}": share for name, share in (halves.shares or {}).items()}
    if halves.share is not None:
        arrays["share"] = halves.share
    return write_arrays(path, facts, arrays)


def load_part(site: Site, path: str | Path) -> str:
    """Read back what ``save_part`` wrote, at the same party; the name of the network."""
    facts, arrays = read_arrays(path)
    try:
        if facts["format"] != FORMAT or facts["version"] != VERSION:
            raise KeyError("format")
        model, party = str(facts["model"]), str(facts["party"])
        if party != site.name:
            raise DataError(f"{str(path)!r} is the part of party {party!r}, not of {site.name!r}")
        if "shares" in facts:
            site.models.keep(model, Part.load(model, facts["shares"], arrays))
            return model
        halves = Halves(share=arrays.get("share"), shares=_part(arrays, "share of/") or None)
        if "bottom" in facts:
            bottom = Bottom.__new__(Bottom)
            bottom.settings = read_plain(BottomSettings, facts["bottom"]["settings"])
            bottom.encoder = InputEncoder.from_plain(facts["bottom"]["encoder"])
            bottom.setup(party)
            bottom.matrix, bottom._seen, bottom.pending = None, None, None
            set_weights(bottom.module, _part(arrays, "bottom/"), str(path))
            halves.bottom = bottom
        if "top" in facts:
            top = Top.__new__(Top)
            top.settings = read_plain(TopSettings, facts["top"]["settings"])
            for name in ("widths", "task", "outputs", "classes", "centre", "spread"):
                setattr(top, name, facts["top"][name])
            top.setup()
            set_weights(top.module, _part(arrays, "top/"), str(path))
            halves.top = top
        site.models.keep(model, halves)
    except DataError:
        raise
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{str(path)!r} is not a part of a network of this version of fedsift") from None
    return model


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
