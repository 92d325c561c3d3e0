"""Statistics of the gate: pure functions over arrays, no input or output."""

from evalsuite.stats.bootstrap import RatioInterval, ratio_interval
from evalsuite.stats.exchange import (
    P_FLOOR,
    Bystanders,
    exchange_pvalue,
    paired_pvalue,
    sign_flip_pvalue,
)
from evalsuite.stats.family import (
    AccuracyDecision,
    AccuracyRule,
    AccuracyTest,
    Margin,
    accuracy_family,
)
from evalsuite.stats.hypotheses import POOLED, Hypothesis, family_pvalues, hypotheses
from evalsuite.stats.paired import (
    Alternative,
    Pairing,
    drop_interval,
    drop_upper_bound,
    mcnemar,
    pair,
    pair_means,
    tango_score,
)
from evalsuite.stats.power import detectable_drop, mcnemar_power, smallest_detectable_drop
from evalsuite.stats.proportions import Interval, clopper_pearson, flip_rate, holm, wilson
from evalsuite.stats.sequential import Look, stop_probability, stopping_look, stopping_rule

__all__ = [
    "POOLED",
    "P_FLOOR",
    "AccuracyDecision",
    "AccuracyRule",
    "AccuracyTest",
    "Alternative",
    "Bystanders",
    "Hypothesis",
    "Interval",
    "Look",
    "Margin",
    "Pairing",
    "RatioInterval",
    "accuracy_family",
    "clopper_pearson",
    "detectable_drop",
    "drop_interval",
    "drop_upper_bound",
    "exchange_pvalue",
    "family_pvalues",
    "flip_rate",
    "holm",
    "hypotheses",
    "mcnemar",
    "mcnemar_power",
    "pair",
    "pair_means",
    "paired_pvalue",
    "ratio_interval",
    "sign_flip_pvalue",
    "smallest_detectable_drop",
    "stop_probability",
    "stopping_look",
    "stopping_rule",
    "tango_score",
    "wilson",
]
