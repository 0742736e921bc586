"""How each method chooses, for somebody who has not heard of it."""

from __future__ import annotations

PLAIN: dict[str, str] = {
    "Auto": (
        "Several methods are tried on parts of the rows and measured on the other parts by a joint model, without "
        "pooling; of those that are about as good as the best, the one that gives away least chooses the columns."
    ),
    "InformationValue": (
        "Each column is cut into ranges; the more differently yes and no are spread over them, the higher it "
        "scores. Columns are looked at one by one."
    ),
    "GiniFilter": (
        "Each column is cut into ranges; the purer a range is in the label, the higher the column scores. "
        "Columns are looked at one by one."
    ),
    "SFFS": "A column scores high where its mean differs between the classes. Columns are looked at one by one.",
    "Muse": (
        "Columns are chosen one after the other: each must tell much about the label and repeat little of "
        "what the chosen ones tell, whichever party they belong to."
    ),
    "FedSDG": (
        "A network is trained over all parties. Every column has a gate with a price: gates of useful columns "
        "stay open, the others close. So the number of columns is found, not given."
    ),
    "StochasticGate": (
        "A network is trained over all parties. Every column has a gate with a price: gates of useful columns "
        "stay open, the others close."
    ),
    "VFLFS": "A network is trained over all parties; columns whose weights stay large are kept.",
    "LessVFL": (
        "A network is trained briefly over all parties. Then each party alone takes away weight from its "
        "columns until shuffled copies of them, which are noise for certain, have none; columns that still "
        "have weight are kept."
    ),
    "LocalLasso": (
        "A network is trained briefly over all parties. Then each party alone takes away weight from its "
        "columns; columns that still have weight are kept."
    ),
    "GroupLasso": (
        "A network is trained over all parties while a penalty takes weight from every column; columns that "
        "still have weight are kept."
    ),
    "FederatedLasso": (
        "A linear model is fitted over all parties' columns with a penalty that sets weak weights to zero."
    ),
    "PsoEvffs": (
        "A swarm of candidate selections is tried with boosted trees on held-out rows; the good ones pull the "
        "others, and columns that the best agree on are kept."
    ),
    "Knockoffs": (
        "Each column gets an invented twin that is related to the other columns as it is, and to the label only "
        "through them. Columns that beat their twins clearly are kept, so many that about the asked share is noise."
    ),
    "Boruta": (
        "Boosted trees are grown on the columns and on shuffled copies of them, again and again; columns that do "
        "better than the best copy more often than chance allows are kept."
    ),
    "Stable": (
        "Another method chooses on many halves of the rows; columns that it chooses nearly every time are kept."
    ),
    "TopGain": (
        "Boosted trees are grown over all parties' columns; those that improve the trees most are kept, as "
        "many as held-out rows ask for."
    ),
    "FedIIFE": (
        "New columns are made by combining pairs; one is kept when a linear model does better with it on held-out rows."
    ),
    "VerticalFLAFE": (
        "Each party brings its best columns; pairs of different parties are combined under encryption into new "
        "columns, and those that tell most about the label are kept."
    ),
    "HybridFLAFE": (
        "Parties with the same columns agree on the best of them; pairs of different columns are combined into new "
        "columns, and those that tell most about the label are kept."
    ),
    "FedHalving": (
        "Many random selections are tried with little training; the better half is trained longer, and so on."
    ),
    "FeatureElection": "Each party selects on its own rows; the votes are added up in secret.",
    "RandomFeatures": "Columns were drawn at random: what any method must beat.",
    "AllFeatures": "Every column is kept: what you have without selecting.",
}
