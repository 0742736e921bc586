"""When a method is good and when not: the columns of docs/choosing.md that a person writes.

Every judgement rests on a table of docs/results.md or on what the method computes; a figure in it must stand in a
results file (a test looks).
"""

from __future__ import annotations

WORDS: dict[str, dict[str, str]] = {
    "auto": {
        "page": "auto.md",
        "good": "you do not know which method suits your table, and its rows pay for trying several",
        "not": (
            "rows are few or the sites' journals are nearly full: every candidate is fitted on every fold; parties "
            "hold rows (nothing measures there without pooling)"
        ),
    },
    "muse": {
        "page": "muse.md",
        "good": (
            "columns of several parties repeat each other: mRMR keeps one of them ([85.1 against "
            "82.9](results.md#muse) for information value on Colon, 3-NN)"
        ),
        "not": (
            "one party of a pair and the coordinator might collude; `mifs` was below random columns on Yale32; "
            "for a linear SVM all columns were better than any fifty"
        ),
    },
    "fedsdg": {
        "page": "fedsdg-fs.md",
        "good": (
            "you do not know how many columns to keep, and columns matter together ([0.881 with 10 of Madelon's "
            "500](results.md#fedsdg-fs), all columns 0.583)"
        ),
        "not": (
            "bytes are dear (hidden training sends a lot, see above); there are few rows and many columns: on "
            "ARCENE's 160 rows and 10,000 columns it has 0.8, all columns 0.85"
        ),
    },
    "less_vfl": {
        "page": "less-vfl.md",
        "good": (
            "much of the table is noise and rounds are dear ([0.988 of Gina's noise removed](results.md#less-vfl))"
        ),
        "not": (
            "columns tell only together (it looks at them one by one); you must keep every useful column (in the clear "
            "0.389 of Gina's were kept)"
        ),
    },
    "pso_evffs": {
        "page": "pso-evffs.md",
        "good": "you want columns for boosted trees and have time for a search",
        "not": (
            "`top_gain` will do: on Sonar the swarm was [below it](results.md#pso-evffs) (0.899 against 0.904); the "
            "run above is tiny, a default swarm takes a quarter of an hour of CPU and some 70 GB on Sonar (three "
            "parties): too much for a slow line"
        ),
    },
    "top_gain": {
        "page": "pso-evffs.md",
        "good": (
            "you want columns for boosted trees; it also chooses their number ([0.904 with 20 columns of "
            "Sonar](results.md#pso-evffs), all 60 give 0.918)"
        ),
        "not": (
            "no coordinator can be found that holds no rows (the open form shows the label holder sums); rounds are "
            "dear (some 450 for the trees that grow together)"
        ),
    },
    "information_value": {
        "page": "information-value.md",
        "good": (
            "a first look with credit-scoring's own measure, quick on long tables ([30,000 rows in 1.01 "
            "s](results.md#cost-of-the-secure-layer))"
        ),
        "not": (
            "columns matter only together, or repeat each other: it keeps copies (redundancy 6.18 against 3.46 "
            "for mRMR on Colon)"
        ),
    },
    "gini": {
        "page": "gini.md",
        "good": (
            "a first look that nobody with rows learns a number from; [0.835 on Madelon](results.md#fedsdg-fs) when "
            "told the number, where gates have 0.881"
        ),
        "not": "columns matter only together, or repeat each other",
    },
    "sffs": {
        "page": "sffs.md",
        "good": (
            "numbers whose class means differ; small messages; the best of fifty columns for SVM on Colon "
            "([82.5](results.md#muse))"
        ),
        "not": "effects that leave the mean alone; long tables (six additions a row and column)",
    },
    "federated_lasso": {
        "page": "muse.md",
        "good": "a linear model is what you want in the end, and its columns with it",
        "not": (
            "effects are not linear; on Yale32 it was [below random columns](results.md#muse) for SVM (63.9 "
            "against 65.3)"
        ),
    },
    "group_lasso": {
        "page": "less-vfl.md",
        "good": "a baseline for `less_vfl`",
        "not": "otherwise: [37.7 MiB on Gina](results.md#less-vfl) against 5.13, and fewer real columns",
    },
    "local_lasso": {
        "page": "less-vfl.md",
        "good": "a baseline for `less_vfl`",
        "not": "otherwise: a party reads the labels from its gradients, and most real columns go with the noise",
    },
    "stochastic_gate": {
        "page": "fedsdg-fs.md",
        "good": (
            "`fedsdg` with one gate a column and no Gini start: nearly as good with a lambda of its own "
            "([0.867 on Madelon](results.md#fedsdg-fs))"
        ),
        "not": "as for `fedsdg`",
    },
    "vflfs": {
        "page": "fedsdg-fs.md",
        "good": "a baseline for `fedsdg`",
        "not": "otherwise: [0.697 on Madelon](results.md#fedsdg-fs), where gates have 0.881",
    },
    "fed_iife": {
        "page": "fed-iife.md",
        "good": (
            "parties hold rows, and a linear model lacks products of columns: [0.125 to "
            "0.821](results.md#fed-iife-horizontal) on OpenML 586"
        ),
        "not": (
            "few columns: on California housing random pairs did as well as chosen ones (0.570 against 0.572); "
            "it adds columns and drops none"
        ),
    },
    "fed_halving": {
        "page": "fed-halving.md",
        "good": "parties hold rows and there are many engineered features to thin out",
        "not": (
            "as proof of a gain: after local engineering it [changed nothing](results.md#fed-iife-horizontal) "
            "on Airfoil (0.636 against 0.639)"
        ),
    },
    "feature_election": {
        "page": "fed-halving.md",
        "good": "parties hold rows and want one vote each, quickly",
        "not": ("a column helps only over all parties' rows or only together with others; we have no benchmark of it"),
    },
    "vertical_flafe": {
        "page": "flafe.md",
        "good": (
            "parties hold columns, and products of columns of different parties matter "
            "([0.518 against 0.401](results.md#vertical--and-hybrid-flafe) for each party's own features on Airfoil)"
        ),
        "not": (
            "a combined column may not be seen by the party that holds it; few rows under differential privacy (at "
            "epsilon 1 nothing was left of the gain on Airfoil); it adds columns and drops none"
        ),
    },
    "hybrid_flafe": {
        "page": "flafe.md",
        "good": "as `vertical_flafe`, for parties that hold both some rows and some columns",
        "not": "as `vertical_flafe`",
    },
    "knockoffs": {
        "page": "discoveries.md",
        "good": (
            "you want few false columns and do not know how many there are; columns are correlated, the label depends "
            "on them linearly or by their spread"
        ),
        "not": (
            "fewer than two columns matter; columns repeat each other (neither is kept); the label depends on products "
            "of columns alone"
        ),
    },
    "boruta": {
        "page": "discoveries.md",
        "good": "the label depends on columns in bends and products, and you want few false ones",
        "not": (
            "a column that only goes along with another party's useful one shall count as noise; rounds are dear (some "
            "400 a tree)"
        ),
    },
    "stable": {
        "page": "discoveries.md",
        "good": "you trust a selector and want of its choice what does not depend on the rows that you happen to have",
        "not": "rows are few: each half has half of them, and the sites' journals count every fit",
    },
    "all": {
        "page": "report.md",
        "good": "the null: what you have without selecting",
        "not": "as a selection",
    },
    "random": {
        "page": "report.md",
        "good": "the null: what as many columns give by luck",
        "not": "as a selection",
    },
}
