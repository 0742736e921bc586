"""Operations without an attack of their own: why none is needed, or which is still to come.

``WAIVERS`` says for an operation in one sentence why its reply needs no attack: its receiver sees uniform numbers, or
the same thing is measured where it is opened. A waiver is an argument, not a figure. ``PENDING`` are operations whose
attack is not written yet, with the line of the first table in security.md (or why there is none); it may only shrink.
Names are read by ``naming.matches``.
"""

from __future__ import annotations

_MASKED_SUM = "Under pairwise masks drawn for this round: a reader of one reply sees uniform numbers, and the total is"
_CIPHER = (
    "Ciphertexts under a key of 2048 bits or more that the receiver does not have; measured where they are opened:"
)
_DEALT = (
    "Sealed between members and under a mask of the dealer's randomness that the receiver does not have: uniform to it "
    "(a test takes every opened number for uniform), and to the coordinator a sealed box;"
)
_BLIND = "Group elements raised to a secret exponent: telling them from random ones is the decisional Diffie-Hellman"

WAIVERS: dict[str, str] = {
    # Filters: sums opened at the coordinator from two halves
    "open_counts": "Counts under masks that the label holder does not have; the coordinator, which holds no rows, "
    "takes them off, and a data holder that runs it is refused.",
    "masked_class_sums": "Ciphertexts of sums under masks 40 bits wider; the masks go to the coordinator alone, which "
    "holds no rows.",
    "open_class_sums": "Sums under masks that the label holder does not have; the coordinator, which holds no rows, "
    "takes them off.",
    # Models
    "model.score": "One accuracy or R2 over all rows; what many such numbers tell together is for the site's journal, "
    "which is still to come.",
    "model.score_sums": f"{_MASKED_SUM} the score of the model.",
    "model.score_sums.open": "An option for one pooled table: the score of one party's own rows.",
    "linear.score_rows": "Predictions of a party's own rows, which it asked for itself.",
    # Linear descent: columns, weights, scores and residuals under one-time masks of the parties
    "share_scores": "Scores under one-time masks that the coordinator does not have.",
    "residual_shares": "Residuals under one-time masks that the coordinator does not have.",
    "gradient_shares": "Sums under one-time masks; their total is read by the coordinator, which holds no rows.",
    "own_gradient": "Sums of the label holder's own columns, read by the coordinator, which holds no rows.",
    "lasso.open_columns": "Which standardised feature belongs to which column, and one variance: no row.",
    "hyfdca.open_columns": "Scales of principal components, one number a component: no row.",
    "logistic.open_columns": "A width and one variance: no row.",
    "part_scores": "Scores under masks of the party and the label holder; their sum is the prediction that is asked.",
    # Boosting on shares
    "hide_gradients": "Gradients under a mask of the dealer and sealed for a party that does not have that mask.",
    "own_half_sums": "A half under a mask of the two parties; both together are sums that the coordinator reads.",
    "divide_nodes": "Gradients under a fresh mask, sealed.",
    "describe_cuts": "How many candidate cuts a column has: the number of its bins.",
    "hide_cuts": "Bits of all rows under a mask of the dealer, sealed for the label holder, who lacks the mask.",
    "half_sums": "A half under a mask of the two parties; both halves together are sums of unnamed cuts.",
    "take_cuts": "Bits under a mask; measured where the label holder opens those of a node: tests/test_boost_hidden.py "
    "and benchmarks/boost.py (cells from left and right).",
    "cut_columns": "Numbers of the columns whose cuts were taken: the answer that a party is entitled to give.",
    "walk_hidden": "Which rows reach a cut, under a mask.",
    "route_hidden": "Bits under a mask; the label holder reads those of rows that are there: as take_cuts.",
    # Filters
    "encrypt_classes": f"{_CIPHER} label_sums, f_statistics.",
    # Ids
    "blind_ids": f"{_BLIND} problem in ristretto255.",
    "blind_again": f"{_BLIND} problem in ristretto255; guessing ids by asking often is a rule of the site (how often).",
    "blind_rows": f"{_BLIND} problem in ristretto255.",
    "raise_rows": f"{_BLIND} problem in ristretto255; guessing ids by asking often is a rule of the site (how often).",
    "number_rows": "A hash of the secrets of all rows together: equal or not equal, nothing about one row.",
    # Names and sizes that a job is about
    "share_names": "Column names are the subject of the job; a party that keeps them private says names = private.",
    "class_names": "Names of the classes, which the report of the model prints.",
    "numeric_columns": "Names and kinds of columns; no row's value.",
    "describe_part": "Names, kinds, numbers of rows and columns; no row's value.",
    "describe_rows": "Names, kinds and class names; no row's value.",
    "missing_rows": "Positions of rows that a party has not combined before: which rows are new, no value.",
    # MUSE
    "own_information": "Goes to the coordinator, which holds no rows; for a party that runs it see preselect.",
    "prepare_columns": "Entropies of quantile bins, nearly the same for every column; where they differ, "
    "label_sums measures it by the sizes of bins.",
    # Vertical logistic regression, HyFDCA, lasso
    "hyfdca.score_rows": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "step_and_score": f"{_MASKED_SUM} the score of each row at the label holder: see raise_duals.",
    "hand_over": "Under a key of the parties with the same columns, who know these weights anyway.",
    "finish_round": f"{_MASKED_SUM} inner products over all parties' columns.",
    "open_part": "Sealed for the parties with the same columns: categories, no row.",
    "sum_columns": f"{_MASKED_SUM} a sum over the rows of all parties with the same columns.",
    "sum_spreads": f"{_MASKED_SUM} a sum over the rows of all parties with the same columns.",
    "scale_columns": "Columns less random numbers that the receiver does not know, and masked products.",
    "hide_columns": "Columns under one-time masks of the label holder and the party.",
    # Boosting and split networks: what is relayed, measured where it is read
    "advance": "Rows of nodes, relayed as they are to the parties that sum them; measured there: level_sums.",
    "upload_embeddings": "Embeddings, relayed as they are to the label holder; measured there: select_components.",
    # Networks on shares: sealed between members, each number under a mask that is drawn for one step and one purpose
    "sine_network.hide_rows": f"{_DEALT} columns and shares of weights less a stream of the dealer.",
    "sine_network.send_angles": f"{_DEALT} angles of a batch.",
    "sine_network.join_angles": f"{_DEALT} angles of a batch.",
    "sine_network.send_output": f"{_DEALT} errors of a batch.",
    "sine_network.shorten_error": f"{_DEALT} errors of a batch.",
    "sine_network.send_error": f"{_DEALT} errors and gradients of a batch.",
    "sine_network.send_gradients": f"{_DEALT} gradients of a batch.",
    "sine_network.loss_half": "A half under a mask of the two parties; both halves together are one number an epoch, "
    "the mean squared error over all rows, which the coordinator reads.",
    "sine_network.send_answer": "A share of the outputs, sealed to the label holder, who is to have them: as "
    "sine_network.predict.",
    "sine_network.score": "One score over many rows.",
    "sine_gates.send_weights": f"{_DEALT} weights and gradients as angles.",
    "sine_gates.join_weights": f"{_DEALT} weights and gradients as angles; and a half under a mask of the two parties, "
    "for which see gate_half.",
    "sine_lasso.shrink_kept": f"{_DEALT} shares of weights.",
    "less_vfl.match_components": "Which columns are left, the answer itself, and one share of variance of the party's "
    "own columns.",
    # Secret shares and sums of the engineers
    "meet_groups": "Sealed for the members of each group.",
    "local_scores": f"{_MASKED_SUM} read by the label holder as one score a row over all other parties.",
    "prediction_share": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "read_prediction": "Predictions go to whoever asked for them: the answer itself.",
    "read_scores": "Predictions go to whoever asked for them: the answer itself.",
    "predicted": "Predictions go to whoever asked for them: the answer itself.",
    "predict_rows": "Predictions go to whoever asked for them: the answer itself.",
    "predict_lattice": "Predictions go to whoever asked for them: the answer itself.",
    "masked_sides": "Columns under one-time masks of two parties; only sums of products come out of them.",
    "correlate_ranks": "Ranks under one-time masks; rank correlations are one number a pair of columns.",
    "hide_factor": "A column less a random vector that the receiver does not know.",
    "share_product": "A random share; the other share stays with the other party.",
    "split_residual": "Random shares, masked for their receivers.",
    "name_choice": "Which column was chosen (the answer), a random sign and a mean square over all rows.",
    "take_operands": "Formulas over column names: the answer itself.",
    "encrypt_columns": f"{_CIPHER} open_combinations.",
    "encrypt_target": f"{_CIPHER} explained_shares.",
    "binned_targets": f"{_CIPHER} explained_shares.",
    "show_columns": "secure=False: whole columns in the clear, as the option and the ledger say; nothing to measure.",
    "share_labels": "The labels in the clear, as the option and the ledger say; nothing to measure.",
    # One number over held-out rows
    "held_out_scores": "One score over all held-out rows a model.",
    "held_out_error": "Two numbers over all held-out rows a model.",
    "score_held": "One score over many rows.",
    "network.score_rows": "One score over many rows.",
    # Layers under encryption: what is opened is masked
    "weigh_lattice": "Ciphertexts of masked activations; measured where rows' gradients are opened: encrypt_lattice.",
    "open_lattice": "Activations under the label holder's mask.",
}

#: Sums over the rows of horizontal parties: masked, only the total over all parties can be read.
for _name in (
    "linear.curvature", "linear.local_steps", "linear.moments", "linear.validation_scores", "study.feature_spread",
    "study.feature_sums", "study.target_spread", "study.target_sums", "iife.candidate_errors",
    "iife.candidate_moments", "iife.feature_moments", "iife.offer_candidates", "iife.additive_moments",
    "iife.grid_counts", "iife.local_interaction", "iife.pair_tables", "flafe.target_moments",
    "flafe.forest_sums", "election.cast_votes",
):  # fmt: skip
    WAIVERS[_name] = f"{_MASKED_SUM} a sum over the rows of all parties."

_ALONE = "no line: sums of one horizontal party in the clear (an option); linear equations when columns outnumber rows"
_TOTALS = "no line: the label holder reads the rows' scores in every step; with one other party they span its columns"

PENDING: dict[str, str] = {
    "open_residuals": _TOTALS,
    "walk_down": "4",
    "route_rows": "4",
    "column_uses": "4",
    "divide": "5",
    "encrypt_lattice": "8",
    "learn_lattice": "8, 10",
    "sine_network.predict": "no line: outputs of networks as equations about columns (docs/splitnn.md has figures of "
    "one and of five networks, as a benchmark, not as an attack here)",
    "sine_gates.gate_half": "no line: gradients of the gates at the coordinator, as scores (6) for whoever holds rows",
    "embed_rows": "10",
    "select_columns": "10",
    "read_gates": "no line: gates of columns at the coordinator, as scores (6) for whoever holds rows",
    "read_norms": "no line: norms of columns at the coordinator, as scores (6) for whoever holds rows",
    "explained_shares": "12",
    "open_shares": "12",
    "forest_scores": "12",
    "choose_operands": "12",
    "own_sides": "12",
    "matched_codes": "no line: joint tables of short tables (issue 23)",
    "raise_duals": _TOTALS,
    "linear.curvature.open": _ALONE,
    "linear.local_steps.open": _ALONE,
    "linear.moments.open": _ALONE,
    "linear.validation_scores.open": _ALONE,
    "study.feature_spread.open": _ALONE,
    "study.feature_sums.open": _ALONE,
    "study.target_spread.open": _ALONE,
    "study.target_sums.open": _ALONE,
    "iife.candidate_errors.open": _ALONE,
    "iife.candidate_moments.open": _ALONE,
    "iife.feature_moments.open": _ALONE,
    "iife.offer_candidates.open": _ALONE,
    "iife.additive_moments.open": _ALONE,
    "iife.grid_counts.open": _ALONE,
    "iife.local_interaction.open": _ALONE,
    "iife.pair_tables.open": _ALONE,
    "flafe.target_moments.open": _ALONE,
    "flafe.forest_sums.open": _ALONE,
    "election.cast_votes.open": _ALONE,
}
