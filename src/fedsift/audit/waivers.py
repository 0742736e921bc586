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
_BLIND = "Group elements raised to a secret exponent: telling them from random ones is the decisional Diffie-Hellman"

WAIVERS: dict[str, str] = {
    # Filters
    "encrypt_classes": f"{_CIPHER} label_sums, f_statistics.",
    "encrypt_one_hot": f"{_CIPHER} open_impurities.",
    "class_sums": f"{_CIPHER} f_statistics.",
    "masked_impurities": f"{_CIPHER} open_impurities.",
    "information_values": "Scores go to the coordinator, which holds no rows; measured where a party is told them: "
    "keep_result.",
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
    "descent.share_scores": "Products with masked weights, under one-time masks of the party and the label holder.",
    "descent.residual_shares": "A share of residuals that nobody opens, under one-time masks; it reads no score.",
    "descent.gradient_shares": "A share under one-time masks; the coordinator, which holds no rows, opens the sums.",
    "descent.own_gradient": "A label holder that is alone tells the coordinator sums over its own columns.",
    "lasso.open_columns": "The largest eigenvalue of the party's correlation matrix: one number a job.",
    "logistic.open_columns": "The largest eigenvalue of the party's correlation matrix: one number a job.",
    "hyfdca.open_columns": "Eigenvalues of the party's correlation matrix, told to the coordinator: no row, no name.",
    "logistic.part_scores": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "linear.score_rows": "Predictions go to whoever asked for them: the answer itself.",
    "model.score": "One score over many rows, of predictions that the label holder made itself.",
    "model.score_sums": f"{_MASKED_SUM} one score over the rows of all label holders.",
    "model.score_sums.open": "Never asked: label holders add up under masks, or one of them tells one score.",
    "hyfdca.score_rows": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "step_and_score": f"{_MASKED_SUM} the score of each row at the label holder: see raise_duals.",
    "hand_over": "Under a key of the parties with the same columns, who know these weights anyway.",
    "finish_round": f"{_MASKED_SUM} inner products over all parties' columns.",
    "open_part": "Sealed for the parties with the same columns: categories, no row.",
    "sum_columns": f"{_MASKED_SUM} a sum over the rows of all parties with the same columns.",
    "sum_spreads": f"{_MASKED_SUM} a sum over the rows of all parties with the same columns.",
    "scale_columns": "Columns less random numbers that the receiver does not know, and masked products.",
    "hide_columns": "Columns under one-time masks of the label holder and the party.",
    # Secret shares and sums of the engineers
    "meet_groups": "Sealed for the members of each group.",
    "local_scores": f"{_MASKED_SUM} read by the label holder as one score a row over all other parties.",
    "prediction_share": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "read_prediction": "Predictions go to whoever asked for them: the answer itself.",
    "read_scores": "Predictions go to whoever asked for them: the answer itself.",
    "predicted": "Predictions go to whoever asked for them: the answer itself.",
    "predict_rows": "Predictions go to whoever asked for them: the answer itself.",
    "predict_additive": "Predictions go to whoever asked for them: the answer itself.",
    "predict_lattice": "Predictions go to whoever asked for them: the answer itself.",
    "shared_predict": "Predictions go to whoever asked for them: the answer itself.",
    "masked_sides": "Columns under one-time masks of two parties; only sums of products come out of them.",
    "correlate_ranks": "Ranks under one-time masks; rank correlations are one number a pair of columns.",
    "hide_factor": "A column less a random vector that the receiver does not know.",
    "share_product": "A random share; the other share stays with the other party.",
    "split_residual": "Random shares, masked for their receivers.",
    "name_choice": "Which column was chosen (the answer), a random sign and a mean square over all rows.",
    "take_operands": "Formulas over column names: the answer itself.",
    "encrypt_columns": f"{_CIPHER} open_combinations.",
    "multiply_columns": f"{_CIPHER} open_combinations.",
    "encrypt_target": f"{_CIPHER} explained_shares.",
    "binned_targets": f"{_CIPHER} explained_shares.",
    "show_columns": "secure=False: whole columns in the clear, as the option and the ledger say; nothing to measure.",
    "share_labels": "The labels in the clear, as the option and the ledger say; nothing to measure.",
    # One number over held-out rows
    "held_out_scores": "One score over all held-out rows a model.",
    "held_out_error": "Two numbers over all held-out rows a model.",
    "score_held": "One score over many rows.",
    "network.score_rows": "One score over many rows.",
    "shared_score": "One score over many rows.",
    # Layers under encryption: what is opened is masked
    "open_activations": "Activations under the label holder's mask.",
    "open_gradients": "Gradients of weights under both masks.",
    "weigh": "Ciphertexts of masked activations; measured where rows' gradients are opened: encrypt_embedding.",
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
    "advance": "4",
    "walk_down": "4",
    "route_rows": "4",
    "column_uses": "4",
    "level_sums": "5, 13",
    "choose_splits": "5",
    "divide": "5",
    "top_round": "8",
    "encrypt_embedding": "8",
    "encrypt_lattice": "8",
    "hide_embedding": "8",
    "update_weights": "8",
    "learn_lattice": "8, 10",
    "learn_top": "8, 10",
    "share_weights": "9",
    "hide_weights": "9",
    "shared_step": "9, 10",
    "bottom_round": "9, 10",
    "embed_rows": "10",
    "upload_embeddings": "10",
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
    "descent.open_residuals": _TOTALS,
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
