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
    "Sealed between members and under a mask of the dealer's randomness that the receiver does not have: uniform to "
    "it, and to the coordinator a sealed box;"
)
_AT_COORDINATOR = "goes to the coordinator, which holds no rows"

WAIVERS: dict[str, str] = {
    "encrypt_every_class": f"{_CIPHER} masked_counts, with noise under a budget.",
    # MUSE with epsilon: the loss is measured from below (tests/test_muse_privacy.py)
    "pay_for_bins": "How many bins a column has, from counts with noise under a budget.",
    "encrypt_bins": f"{_CIPHER} muse.masked_tables, with noise under a budget.",
    "masked_tables": "Ciphertexts of sums with noise under masks 40 bits wider; the masks go to the coordinator alone.",
    "open_tables": "Counts with noise under a budget, under masks that their reader does not have.",
    "election.block_votes.open": "An option: how many blocks of one party voted for a column, with its full noise "
    "under a budget; the loss is measured from below (tests/test_feature_election.py).",
    # Models
    "model.score": "One accuracy or R2 over all rows; what many such numbers tell together is for the site's journal, "
    "which is still to come.",
    "model.score_sums": f"{_MASKED_SUM} the score of the model.",
    "model.score_sums.open": "An option for one pooled table: the score of one party's own rows.",
    "linear.hold_scores": "The common weights of a horizontal model: the answer, which every party gets.",
    "linear.score_rows": "Predictions of a party's own rows, which it asked for itself.",
    "evaluate.deal_folds": "Folds are dealt without a look at the label (a test turns the labels round and gets the "
    "same folds), in the order of a secret draw: which rows are in a fold tells nothing about any of them.",
    "halves.deal_blocks": "Blocks are dealt without a look at the label (a test turns the labels round).",
    "statistics.open_columns": "Which columns are numbers: no row.",
    "statistics.open_logistic": "Which columns are numbers that vary: no row.",
    "weighted.hide_sides": "Columns and their products under one-time masks: uniform to whoever receives them.",
    "weighted.keep_covered": "Receives columns under masks that it does not know: uniform to it.",
    "weighted.left_shares": f"Shares under one-time masks; weighted mean products come out, {_AT_COORDINATOR}.",
    "weighted.right_sides": f"The same, and weighted mean products of its own unnamed columns, {_AT_COORDINATOR}.",
    "statistics.compare_sample": "One number of two digits a column about all rows of two samples, nothing of labels, "
    f"{_AT_COORDINATOR}; samples are views of min_rows rows and more, and a journal refuses those that tell few "
    "rows apart (site/journal_atoms.py).",
    "knockoffs.open_columns": "How many numbers a column makes: its categories, no row.",
    "evaluate.release": "One rounded mean, deviation and interval a method and measure over all folds; what many such "
    "figures tell together is for the site's journal.",
    # Explanations
    "boost.tell_sides": "Sealed for the label holder, which a default policy refuses: the form is plain; measured "
    "where fewer of the same bits are read: walk_down.",
    "boost.explain_rows": "The same sides, opened: only where the partner's policy has allowed it by name.",
    "boost.tell_importance": "Mean absolute values of columns, four digits; counted in the label holder's journal.",
    "boost.tell_explanations": "The form is plain: the answer, where the label holder's policy lets it go.",
    # Measures on shares
    "begin_grading": "The first step of grade_on.",
    "grade_on": "Uniform numbers: every value is under a fresh mask of which neither side knows more than a share "
    "(tests/test_grading.py), sealed from the coordinator.",
    "keep_rest": "A share of the scores: uniform to the label holder, which gets seeds and weights under a mask.",
    "take_share": "A share of the scores under a mask that the party does not know: uniform to it.",
    "unseen_scores": "Scores under one-time masks of the party and the label holder, which gets none of them.",
    "keep_total": "Scores under the other parties' masks, and this party's own.",
    "keep_own": "The label holder's own part of the scores, less masks: nothing of another party's.",
    "additive.open_columns": "A width and one variance: no row.",
    "model.performance": "Rates of groups of ten rows or more, two digits each; what many such figures tell together "
    "is for the site's journal.",
    "model.tell_by_id": "Predictions go to whoever asked for them: the answer itself; a default policy refuses it.",
    "additive.tell_scores": "Predictions go to whoever asked for them: the answer itself.",
    # Linear descent
    "own_gradient": "Sums of the label holder's own columns, read by the coordinator, which holds no rows.",
    "lasso.open_columns": "Which standardised feature belongs to which column, and one variance: no row.",
    "hyfdca.open_columns": "Scales of principal components, one number a component: no row.",
    "logistic.open_columns": "A width and one variance: no row.",
    # Boosting on shares
    "describe_cuts": "How many candidate cuts a column has: the number of its bins.",
    "column_uses": "How often each column was cut and with which gain: the importances that were asked for.",
    "divide": "Which rows of a node go left, in the open form; measured where the same bits are read: walk_down.",
    "cut_columns": "Numbers of the columns whose cuts were taken: the answer that a party is entitled to give.",
    # Boosting on shares, compared
    "compare": "Uniform numbers: every value is under a fresh mask of which neither side knows more than a share "
    "(tests/test_comparing.py), sealed from the coordinator.",
    "compare_level": "The first step of compare; what it is sent row by row is hide_level's.",
    "begin_finals": "The first step of compare, about the parties' best cuts.",
    "begin_leaves": "The first step of compare, about sums that are divided.",
    "begin_gains": "The first step of compare, about gains of cuts.",
    "keep_leaves": "One share of each number; the other stays with the label holder.",
    "pass_best": "One share of each number; the other stays with the label holder.",
    "tell_winners": "Which of its own cuts were taken, told to their owner: the answer that it is entitled to.",
    "gain_halves": "A half under a mask of the two parties; both together are one gain a column.",
    "show_scores": "A share; with the label holder's own the scores of its rows, which it is to have: predicted.",
    # Filters
    "encrypt_classes": f"{_CIPHER} open_counts, open_class_sums.",
    # Names and sizes that a job is about
    "share_names": "Column names are the subject of the job; a party that keeps them private says names = private.",
    "class_names": "Names of the classes, which the report of the model prints.",
    "numeric_columns": "Names and kinds of columns; no row's value.",
    "load_numbers": "Names of columns, chosen by the party from its own columns without a label, or the names told.",
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
    # Boosting and split networks: what is relayed, measured where it is read
    "advance": "Rows of nodes, relayed as they are to the parties that sum them; measured there: level_sums.",
    "upload_embeddings": "Embeddings, relayed as they are to the label holder; measured there: select_components.",
    # Networks on shares: what is told of rows is attacked (attacks/masks.py); these tell of no row
    "sine_network.loss_half": "A half under a mask of the two parties; both halves together are one number an epoch, "
    "the mean squared error over all rows, which the coordinator reads; the parties refuse it of fewer rows.",
    "sine_network.score": "One score over many rows.",
    "sine_gates.send_weights": f"{_DEALT} weights and gradients as angles, no number of a row.",
    "sine_gates.join_weights": f"{_DEALT} weights and gradients as angles; and a half under a mask of the two parties, "
    "for which see gate_half.",
    "sine_gates.gate_half": f"Both halves together are one number a column, which {_AT_COORDINATOR}; what a party "
    "hears of it are bits, measured there: set_gates.",
    "read_gates": f"One number for each column, known to its owner, {_AT_COORDINATOR}.",
    "read_norms": f"One number for each column, known to its owner, {_AT_COORDINATOR}.",
    "select_columns": f"One number for each column, known to its owner, {_AT_COORDINATOR}.",
    "sine_lasso.send_factors": f"{_DEALT} weights, no number of a row.",
    "sine_lasso.multiply_kept": "Shares of weights and factors under masks of the dealer, sealed: no number of a row.",
    "sine_lasso.send_wraps": "A bit of a share of each weight under a coin of the dealer's, sealed.",
    "sine_lasso.shrink_kept": "Shares of weights under masks of the dealer, sealed: no number of a row.",
    "less_vfl.match_components": "Which columns are left, the answer itself, and one share of variance of the party's "
    "own columns.",
    # Secret shares and sums of the engineers
    "draw_secrets": "Sealed for the members of each group.",
    "prediction_share": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "masked_sides": "Columns under one-time masks of two parties; only sums of products come out of them.",
    "hide_factor": "A column less a random vector that the receiver does not know.",
    "share_product": "A random share; the other share stays with the other party.",
    "split_residual": "Random shares, masked for their receivers.",
    "name_choice": "Which column was chosen (the answer), a random sign and a mean square over all rows.",
    "own_sides": f"Sums of products of unnamed columns over all rows, one number a pair, {_AT_COORDINATOR}.",
    "forest_scores": f"One number for each candidate of the label holder's own columns, {_AT_COORDINATOR}.",
    "open_shares": "Only with protection='open', where the party has been told the labels themselves: share_labels.",
    "bounded_operands": "Names, and ranges that are public or differentially private; tests/test_engineer_privacy.py "
    "measures the loss.",
    "alike_features": f"A bit for every two of a party's own unnamed features, nothing of labels, {_AT_COORDINATOR}.",
    "encrypt_columns": f"{_CIPHER} open_combinations.",
    "encrypt_target": f"{_CIPHER} open_targets.",
    "show_columns": "secure=False: whole columns in the clear, as the option and the ledger say; nothing to measure.",
    "share_labels": "The labels in the clear, as the option and the ledger say; nothing to measure.",
    # What a party learns from a request
    "align.keep_known": "Parts of a key that only the parties have; a digest of all ids at once under it.",
    "boost.meet_cuts": "How many candidate cuts a column has: the number of its bins.",
    "dealer.take_seed": "Random numbers from the dealer: nothing of anybody's rows.",
    "delivery.keep_end": "That the job has ended: nothing of anybody's rows.",
    "delivery.keep_failure": "That the job failed, and why, in words that hold no data.",
    "flafe.compare_matrix": "In a grid, mean and deviation of the target over all row blocks: two numbers.",
    "flafe.form_candidates_by": "Means and deviations over all row blocks; who is in such sums: feature_sums.",
    "flafe.scale_candidates_by": "Means and deviations over all row blocks; who is in such sums: feature_sums.",
    "flafe.keep_target": f"{_CIPHER} open_targets.",
    "flafe.take_labels": "The labels in the clear, as the option and the ledger say; nothing to measure.",
    "flafe.noisy_residual": "Weights and means from sums with noise under a budget; tests/test_engineer_privacy.py "
    "measures the loss.",
    "group.take_secrets": "Keys that the members of a group share: nothing of anybody's rows.",
    "hyfdca.start_rounds": f"{_MASKED_SUM} products of a party's columns over all parties with the same columns.",
    "iife.admit": "Means and deviations of candidates over all parties; who is in such sums: feature_sums.",
    "pairs.meet": "Public keys: nothing of anybody's rows.",
    "model.measure": "One measure over all rows of a fold, of predictions that the label holder is to have.",
    "model.keep_by_id": "Predictions that the label holder is to have, by id.",
    "boost.join_shares": "Random numbers from the dealer: nothing of anybody's rows.",
    "boost.hear_scores": "Scores of its rows, summed over all trees of a model: its own predictions.",
    "boost.hear_predicted": "The same predictions as boost.predicted.",
    "boost.hold_predicted": "The same predictions as boost.predicted; what left and right tell is measured: walk_down.",
    "hyfdca.hold_scores": "The sum of the other parties' scores of each row, which is the prediction.",
    "logistic.hold_scores": "The sum of the other parties' scores of each row, which is the prediction.",
    "sine_network.hold_all": "The same outputs of the same rows as sine_network.predict, measured there.",
    "study.keep_rows": "Names of the classes that occur anywhere, which the report of the model prints.",
    "study.scale_target": "Mean and deviation of the target over all parties: two numbers.",
    "sine_network.hold": "The same outputs of the same rows as sine_network.predict, measured there.",
    # One number over held-out rows
    "held_out_scores": "One score over all held-out rows a model.",
    "held_out_error": "Two numbers over all held-out rows a model.",
    "score_held": "One score over many rows.",
    "network.score_rows": "One score over many rows; in the open form alone, where embeddings are read by everybody on "
    "the way: top_round.",
    # Layers under encryption: what is opened is masked
    "weigh_lattice": "Ciphertexts of masked activations; measured where rows' gradients are opened: encrypt_lattice.",
    "open_lattice": "Activations under the label holder's mask.",
}

#: Sums over the rows of horizontal parties. Under masks only the total over all parties can be read; without (an
#: option) they are sums of one party's rows. Who is in such sums is measured where they are means of columns.
_SUMS = (
    "linear.curvature", "linear.local_steps", "linear.validation_scores", "study.feature_spread",
    "study.target_spread", "study.target_sums", "iife.candidate_errors", "iife.candidate_moments",
    "iife.feature_moments", "iife.offer_candidates", "iife.additive_moments", "iife.grid_counts",
    "iife.local_interaction", "iife.pair_tables", "flafe.target_moments", "flafe.forest_sums", "election.cast_votes",
    "election.block_votes", "iife.noisy_counts", "iife.noisy_moments", "iife.noisy_pairs",
)  # fmt: skip
for _name in _SUMS:
    WAIVERS[_name] = f"{_MASKED_SUM} a sum over the rows of all parties; who is in such sums: feature_sums."
    WAIVERS[f"{_name}.open"] = (
        "An option: sums over one party's rows, read by the coordinator, which holds no rows; who is in such sums is "
        "measured where they are means of columns: feature_sums.open, linear.moments.open."
    )
WAIVERS["linear.moments"] = f"{_MASKED_SUM} a sum over the rows of all parties; who is in such sums: feature_sums."
for _name in ("iife.noisy_counts.open", "iife.noisy_moments.open", "iife.noisy_pairs.open"):
    WAIVERS[_name] = "No method lists it: a site refuses it."

PENDING: dict[str, str] = {}
