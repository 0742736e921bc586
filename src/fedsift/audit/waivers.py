"""Operations without an attack of their own: why none is needed, or which is still to come.

``WAIVERS`` says for an operation in one sentence why its reply needs no attack: its receiver sees uniform numbers, or
the same thing is measured where it is opened. A waiver is an argument, not a figure. ``PENDING`` are operations whose
attack is not written yet, with the line of the first table in security.md (or why there is none); it may only shrink.

An operation is named by its whole id: a new one of another family must not be waived by chance. What a sentence says
is held against what the operation declares (tests/test_audit_waivers.py): "uniform" and "under masks" against its form,
"measured where" and "see" against the attacks, "goes to the coordinator" and "journal" against who opens it, "no row"
against replies on more rows, a test against the file. Sentences that are an argument and nothing more are counted.
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
    "tables.encrypt_every_class": f"{_CIPHER} masked_counts, with noise under a budget.",
    "muse.pay_for_bins": "How many bins a column has, from counts with noise under a budget; the loss of all of it is "
    "measured from below (tests/test_muse_privacy.py).",
    "muse.encrypt_bins": "Ciphertexts under a key of 2048 bits or more that the receiver does not have; what is opened "
    "has noise under a budget, whose loss is measured from below (tests/test_muse_privacy.py).",
    "muse.masked_tables": "Ciphertexts of sums with noise under masks 40 bits wider; the masks go to the coordinator "
    "alone.",
    "muse.open_tables": "Counts with noise under a budget, under masks that their reader does not have.",
    "election.noisy_ballot.open": "An option: the ballot of one party, of a model that it fitted to sums with its full "
    "noise under a budget; the loss of these is measured from below (tests/test_feature_election.py).",
    "election.block_votes.open": "An option: how many blocks of one party voted for a column, with its full noise "
    "under a budget; the loss is measured from below (tests/test_feature_election.py).",
    # Models
    "model.score": "One accuracy or R2 over all rows; what many such numbers tell together the site's journal counts.",
    "model.score_sums": f"{_MASKED_SUM} the score of the model.",
    "model.score_sums.open": "An option for one pooled table: the score of one party's own rows.",
    "linear.hold_scores": "The common weights of a horizontal model: the answer, which every party gets.",
    "linear.score_rows": "Predictions of a party's own rows, which it asked for itself.",
    "evaluate.deal_folds": "Folds are dealt without a look at the label (a test turns the labels round and gets the "
    "same folds, tests/test_evaluate_joint.py), in the order of a secret draw: which rows are in a fold tells nothing "
    "about any of them.",
    "halves.deal_blocks": "Blocks are dealt without a look at the label (a test turns the labels round, "
    "tests/test_stable.py).",
    "statistics.open_columns": "Which columns are numbers: no row.",
    "statistics.open_logistic": "Which columns are numbers that vary: no row.",
    "woe.ordered": "How many bins of a column stand in order: no row.",
    "woe.let_go": "A number of weights and of bits.",
    "weighted.hide_sides": "Columns and their products under one-time masks: uniform to whoever receives them.",
    "weighted.keep_covered": "Receives columns under masks that it does not know: uniform to it.",
    "weighted.left_shares": "Shares under one-time masks; what comes out of them at the coordinator has the form of "
    "what it opens of the label holder's columns, measured there: right_sides.",
    "knockoffs.open_columns": "How many numbers a column makes: its categories, no row.",
    "evaluate.release": "One rounded mean, deviation and interval a method and measure over all folds; what many such "
    "figures tell together the site's journal counts.",
    # Explanations
    "boost.tell_sides": "Sealed for the label holder, which a default policy refuses: the form is plain; measured "
    "where fewer of the same bits are read: walk_down.",
    "boost.explain_rows": "The same sides, opened, only where the partner's policy has allowed it by name; fewer "
    "of the same bits are measured where trees are walked: walk_down.",
    "boost.tell_importance": "Mean absolute values of columns, four digits; what many such figures tell together the "
    "site's journal counts.",
    "boost.tell_explanations": "The form is plain: the answer, where the label holder's policy lets it go.",
    # Measures on shares
    "scores.keep_rest": "A share of the scores: uniform to the label holder, which gets seeds and weights under a "
    "mask.",
    "scores.take_share": "A share of the scores under a mask that the party does not know: uniform to it.",
    "logistic.unseen_scores": "Scores under one-time masks of the party and the label holder, which gets none of them.",
    "logistic.keep_total": "Scores under the other parties' masks, and this party's own.",
    "logistic.keep_own": "The label holder's own part of the scores, less masks: nothing of another party's.",
    "additive.open_columns": "A width and one variance: no row.",
    "model.performance": "Rates of groups of ten rows or more, two digits each; what many such figures tell together "
    "the site's journal counts.",
    "model.tell_by_id": "Predictions go to whoever asked for them: the answer itself; a default policy refuses it.",
    "additive.tell_scores": "Predictions go to whoever asked for them: the answer itself.",
    # Linear descent
    "lasso.open_columns": "Which standardised feature belongs to which column, and one variance: no row.",
    "hyfdca.open_columns": "Scales of principal components, one number a component: no row.",
    "logistic.open_columns": "A width and one variance: no row.",
    # Boosting on shares
    "boost.describe_cuts": "How many candidate cuts a column has: the number of its bins.",
    "boost.column_uses": "How often each column was cut and with which gain: the importances that were asked for.",
    "boost.divide": "Which rows of a node go left, in the open form; measured where the same bits are read: walk_down.",
    "boost.cut_columns": "Numbers of the columns whose cuts were taken: the answer that a party is entitled to give.",
    # Boosting on shares, compared
    "boost.compare": "Uniform numbers: every value is under a fresh mask of which neither side knows more than a share "
    "(tests/test_comparing.py), sealed from the coordinator.",
    "boost.compare_level": "The first step of compare: uniform numbers; what it is sent row by row is hide_level's.",
    "boost.begin_finals": "The first step of compare: uniform numbers, about the parties' best cuts.",
    "boost.begin_leaves": "The first step of compare: uniform numbers, about sums that are divided.",
    "boost.begin_gains": "The first step of compare: uniform numbers, about gains of cuts.",
    "boost.keep_leaves": "One share of each number, uniform by itself; the other stays with the label holder.",
    "boost.pass_best": "One share of each number, uniform by itself; the other stays with the label holder.",
    "boost.tell_winners": "Which of its own cuts were taken, told to their owner: the answer that it is entitled to.",
    "boost.gain_halves": "A half under a mask of the two parties; both together are one gain a column.",
    "boost.tell_stopped": "How many trees a model has, which everybody who grows it sees: no row, and of its losses "
    "only after which tree they were least (tests/test_boost_stopping.py).",
    "boost.show_scores": "A share; with the label holder's own the scores of its rows, measured there: "
    "boost.predicted.",
    # Filters
    "labels.encrypt_classes": f"{_CIPHER} open_counts, open_class_sums.",
    "labels.encrypt_more": f"{_CIPHER} open_counts. The next block of rows: nothing is answered before all have come "
    "(tests/hostile/test_label_blocks.py).",
    "f_test.encrypt_for_groups": f"{_CIPHER} open_class_sums.",
    "f_test.masked_group_sums": "Per-class sums of unnamed means of groups of columns: fewer, and of the form of those "
    "of columns, measured there: masked_class_sums.",
    "f_test.open_group_sums": "The same sums of the label holder's own groups, and halves under masks; measured where "
    "columns are summed: open_class_sums.",
    "descent.hide_row_weights": "Uniform numbers: what rows count under a one-time mask that the coordinator lacks "
    "(tests/test_weighted_models.py).",
    "descent.weigh_share": "Uniform numbers: products under a fresh mask of the helper and the label holder "
    "(tests/test_weighted_models.py).",
    "f_test.encrypt_for_bits": f"{_CIPHER} open_counts, open_class_sums.",
    "f_test.encrypt_weights": f"{_CIPHER} open_class_sums.",
    "f_test.bin_places": "Where bins stand, from counts with noise under a budget and from nothing else "
    "(tests/test_audit_waivers.py).",
    # Names and sizes that a job is about
    "core.share_names": "Column names are the subject of the job; a party that keeps them private says names = "
    "private.",
    "model.class_names": "Names of the classes, which the report of the model prints: no row.",
    "boost.class_names": "Names of the classes, which the report of the model prints: no row.",
    "network.class_names": "Names of the classes, which the report of the model prints: no row.",
    "flafe.numeric_columns": "Names and kinds of columns; no row's value.",
    "flafe.load_numbers": "Names of columns, chosen by the party from its own columns without a label, or the names "
    "told.",
    "hyfdca.describe_part": "Names, kinds, numbers of rows and columns; no row's value.",
    "study.describe_rows": "Names, kinds and class names; no row's value.",
    "flafe.missing_rows": "Positions of rows that a party has not combined before: which rows are new, no value.",
    # MUSE
    "muse.own_information": "Goes to the coordinator, which holds no rows; a party that runs it is "
    "refused (tests/test_muse.py).",
    "muse.prepare_columns": "Entropies of quantile bins, nearly the same for every column; where they differ, "
    "it is measured where the sizes of bins are read: masked_counts.",
    # Vertical logistic regression, HyFDCA, lasso
    "hyfdca.score_rows": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "hyfdca.step_and_score": f"{_MASKED_SUM} the score of each row at the label holder: see raise_duals.",
    "hyfdca.hand_over": "Under a key of the parties with the same columns, who know these weights anyway.",
    "hyfdca.finish_round": f"{_MASKED_SUM} inner products over all parties' columns.",
    "hyfdca.open_part": "Sealed for the parties with the same columns: categories, no row.",
    "hyfdca.sum_columns": f"{_MASKED_SUM} a sum over the rows of all parties with the same columns.",
    "hyfdca.sum_spreads": f"{_MASKED_SUM} a sum over the rows of all parties with the same columns.",
    "hyfdca.scale_columns": "Columns less random numbers that the receiver does not know, and masked products.",
    # Boosting and split networks: what is relayed, measured where it is read
    "boost.advance": "Rows of nodes, relayed as they are to the parties that sum them; measured there: level_sums.",
    "less_vfl.upload_embeddings": "Embeddings, relayed as they are to the label holder; measured there: "
    "select_components.",
    # Networks on shares: what is told of rows is attacked (attacks/masks.py); these tell of no row
    "sine_network.loss_half": "A half under a mask of the two parties; both halves together are one number an epoch, "
    "the mean squared error over all rows, which the coordinator reads; the parties refuse it of fewer rows.",
    "sine_network.score": "One score over many rows.",
    "sine_gates.send_weights": f"{_DEALT} weights and gradients as angles, no number of a row.",
    "sine_gates.join_weights": f"{_DEALT} weights and gradients as angles; and a half under a mask of the two parties, "
    "measured where bits of it are heard: set_gates.",
    "sine_gates.gate_half": f"Both halves together are one number a column, which {_AT_COORDINATOR}; what a party "
    "hears of it are bits, measured there: set_gates.",
    "fedsdg.read_gates": f"One number for each column, known to its owner, {_AT_COORDINATOR}.",
    "less_vfl.read_norms": f"One number for each column, known to its owner, {_AT_COORDINATOR}.",
    "less_vfl.select_columns": f"One number for each column, known to its owner, {_AT_COORDINATOR}.",
    "sine_lasso.send_factors": f"{_DEALT} weights, no number of a row.",
    "sine_lasso.multiply_kept": "Shares of weights and factors under masks of the dealer, sealed: no number of a row.",
    "sine_lasso.send_wraps": "A bit of a share of each weight under a coin of the dealer's, sealed.",
    "sine_lasso.shrink_kept": "Shares of weights under masks of the dealer, sealed: no number of a row.",
    "less_vfl.match_components": "Which columns are left, the answer itself, and one share of variance of the party's "
    "own columns.",
    # Secret shares and sums of the engineers
    "group.draw_secrets": "Sealed for the members of each group: keys, nothing of anybody's rows.",
    "flafe.prediction_share": f"{_MASKED_SUM} a prediction, which its reader is entitled to.",
    "flafe.masked_sides": "Columns under one-time masks of two parties; only sums of products come out of them.",
    "flafe.hide_factor": "A column under a mask, a random vector that the receiver does not know.",
    "flafe.share_product": "A share, uniform by itself; the other share stays with the other party.",
    "flafe.split_residual": "Random shares, sealed for their receivers.",
    "flafe.name_choice": "Which column was chosen (the answer), a random sign and a mean square over all rows.",
    "flafe.own_sides": f"Sums of products of unnamed columns over all rows, one number a pair, {_AT_COORDINATOR}; what "
    "they tell somebody with everybody's records is measured where columns have names: own_products.",
    "flafe.forest_scores": f"One number for each candidate of the label holder's own columns, {_AT_COORDINATOR}.",
    "flafe.open_shares": "Only with protection='open', where the party has been told the labels themselves: "
    "share_labels.",
    "flafe.bounded_operands": "Names, and ranges that are public or differentially private; "
    "tests/test_engineer_privacy.py "
    "measures the loss.",
    "flafe.alike_features": f"A bit for every two of a party's own unnamed features, nothing of labels, "
    f"{_AT_COORDINATOR}.",
    "flafe.encrypt_columns": f"{_CIPHER} open_combinations.",
    "flafe.multiply_columns": f"{_CIPHER} open_combinations.",
    "flafe.encrypt_target": f"{_CIPHER} open_targets.",
    "flafe.show_columns": "secure=False: whole columns in the clear, as the option and the ledger say; nothing to "
    "measure.",
    "flafe.share_labels": "The labels in the clear, as the option and the ledger say; nothing to measure.",
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
    "boost.hear_predicted": "Predictions of its rows, measured where they are read: boost.predicted.",
    "boost.hold_predicted": "The same predictions as boost.predicted; what left and right tell is measured there: "
    "walk_down.",
    "hyfdca.hold_scores": "The sum of the other parties' scores of each row, measured where it is read: read_scores.",
    "logistic.hold_scores": "The sum of the other parties' scores of each row, measured where it is read: read_scores.",
    "sine_network.hold_all": "The same outputs of the same rows, measured where they are read: sine_network.predict.",
    "study.keep_rows": "Names of the classes that occur anywhere, which the report of the model prints.",
    "study.scale_target": "Mean and deviation of the target over all parties: two numbers.",
    "sine_network.hold": "The same outputs of the same rows, measured where they are read: sine_network.predict.",
    # One number over held-out rows
    "flafe.held_out_error": "Two numbers over all held-out rows a model.",
    "network.score_held": "One score over many rows.",
    "network.score_rows": "One score over many rows; in the open form alone, embeddings are measured where they are "
    "read: top_round.",
    # Layers under encryption: what is opened is masked
    "network_lattice.weigh_lattice": "Ciphertexts of masked activations; measured where rows' gradients are opened: "
    "encrypt_lattice.",
    "network_lattice.open_lattice": "Activations under the label holder's mask.",
}

#: Sums over the rows of horizontal parties. Under masks only the total over all parties can be read; without (an
#: option) they are sums of one party's rows. Who is in such sums is measured where they are means of columns.
_SUMS = (
    "linear.curvature", "linear.local_steps", "linear.validation_scores", "study.feature_spread",
    "study.target_spread", "study.target_sums", "iife.candidate_errors", "iife.candidate_moments",
    "iife.feature_moments", "iife.offer_candidates", "iife.local_interaction", "flafe.target_moments",
    "flafe.forest_sums", "election.cast_votes",
    "election.block_votes", "election.noisy_ballot", "iife.noisy_counts", "iife.noisy_moments", "iife.noisy_pairs",
)  # fmt: skip
for _name in _SUMS:
    WAIVERS[_name] = f"{_MASKED_SUM} a sum over the rows of all parties; who is in such sums: feature_sums."
    WAIVERS.setdefault(
        f"{_name}.open",
        "An option: sums over one party's rows, read by the coordinator, which holds no rows; who is in such sums is "
        "measured where they are means of columns: study.feature_sums.open, linear.moments.open.",
    )
for _name in ("iife.candidate_moments", "iife.feature_moments"):
    WAIVERS[_name] = (
        f"{_MASKED_SUM} a sum over the rows of all parties; to a reader with everybody's records these are "
        "equations, measured where there are most of them: pair_tables."
    )
for _name in ("iife.noisy_counts.open", "iife.noisy_moments.open", "iife.noisy_pairs.open"):
    WAIVERS[_name] = "No method lists it: a site refuses it."

PENDING: dict[str, str] = {}
