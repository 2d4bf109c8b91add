"""Every recorded TensorFlow case. Selections bit for bit; sums within one unit in the last place of the exact value
or as close
to it as TensorFlow's. Where TensorFlow is wrong or contradicts itself, our rule is asserted instead, by name."""

import golden
import numpy as np
import pytest
from expected import expected
from judge import assert_outcomes, assert_same_bits, error_of
from reference import Refused

import poolgrad as pg

# A tag that says TensorFlow's answer is not ours, and the rule of ours that decides.
OUR_RULES = {
    "special": "NaN propagates and the first NaN is chosen; an all -inf window is -inf",
    "tf-quirk-lowest": "a maximum is one of the window's elements, never a number the input does not hold",
    "tf-quirk-3dties": "the first element equal to orig_output is chosen, in three dimensions as in two",
    "tf-bug-window": "a window is the same in the forward and in the gradient",
    "tf-bug-shift": "SAME never shifts the grid to the right",
    "tf-bug-lowprec": "float16 and bfloat16 are accumulated in float32 and rounded once",
}

# TensorFlow raises, we have an answer.
ANSWERED = {
    "N1047": "an empty input has an empty argmax",
    "N1054": "an empty input has an empty argmax",
    "N1068": "an empty input has an empty argmax",
    "N1075": "an empty input has an empty argmax",
    "N1082": "an empty input has an empty argmax",
    "N1124": "MaxPoolGradGradWithArgmax exists on the CPU",
    "N1166": "a fractional ratio of 1 has a gradient",
    "O0056": "channels-first has a gradient",
}

# TensorFlow answers, we refuse.
REFUSED = {
    "N1038": "a sequence ends at the input length",
    "N1039": "a sequence increases",
    "N1041": "a sequence starts at 0",
}

ONEDNN_TOLERANCE = {"float32": 2e-6, "bfloat16": 2e-2}
V2 = ("MaxPoolV2", "MaxPoolGradV2", "MaxPoolGradGradV2")
FRACTIONAL_FORWARD = ("FractionalMaxPool", "FractionalAvgPool")


def by_id(case):
    return case["id"] + "-" + case["op"]


def is_refused(case):
    return case["id"] in REFUSED or ("error" in case and case["id"] not in ANSWERED)


def outcomes(case):
    """Our expectation, from the reference; a fractional forward is judged on the cells TensorFlow recorded."""
    a = golden.arguments(case)
    if case["op"] in V2:
        a |= {name: a[name].ravel().tolist() for name in ("ksize", "strides")}
    if case["op"] in FRACTIONAL_FORWARD:
        a["row_pooling_sequence"], a["col_pooling_sequence"] = golden.outputs(case)[1:]
    return expected(case["op"], a)


def our_rule(case):
    """The name of the rule that replaces TensorFlow's answer in this case, if one does."""
    return next((OUR_RULES[tag] for tag in case["tags"] if tag in OUR_RULES), ANSWERED.get(case["id"]))


@pytest.mark.parametrize("case", [c for c in golden.cases() if not is_refused(c)], ids=by_id)
def test_result(case):
    call = getattr(pg.raw_ops, case["op"])
    theirs = None if our_rule(case) else golden.outputs(case)
    result = call(**golden.arguments(case))
    if case["kernels"] == "native":
        assert_outcomes(result, outcomes(case), our_rule(case) or "TensorFlow", theirs)
    else:
        assert_outcomes(result, outcomes(case), our_rule(case) or "oneDNN")
    if theirs is None:
        return
    for ours, recorded, want in zip(result if isinstance(result, tuple) else [result], theirs, outcomes(case)):
        if not want.is_sum:
            assert_same_bits(ours, recorded, "TensorFlow's selection")
        elif case["kernels"] == "onednn":
            off = np.abs(ours.astype(np.float64) - recorded.astype(np.float64))
            scale = np.abs(recorded.astype(np.float64)).max(initial=1.0)
            assert (off <= ONEDNN_TOLERANCE[ours.dtype.name] * scale).all(), "oneDNN's sum"
    if case["op"] in FRACTIONAL_FORWARD:
        assert_same_bits(result.row_pooling_sequence, theirs[1], "row sequence")
        assert_same_bits(result.col_pooling_sequence, theirs[2], "column sequence")


@pytest.mark.parametrize("case", [c for c in golden.cases() if is_refused(c)], ids=by_id)
def test_refused(case):
    with pytest.raises((pg.errors.InvalidArgument, pg.errors.InvalidType)) as caught:
        getattr(pg.raw_ops, case["op"])(**golden.arguments(case))
    assert case["op"] in str(caught.value)
    assert caught.value.operator == case["op"]


def test_every_case_is_judged_by_someone():
    """The tables above name real cases, and a case whose answer we change is in one of them."""
    known = {c["id"]: c for c in golden.cases()}
    assert len(known) == 879
    assert set(ANSWERED) <= {i for i, c in known.items() if "error" in c}
    assert set(REFUSED) <= {i for i, c in known.items() if "error" not in c}
    for i in REFUSED:
        with pytest.raises(Refused):
            outcomes(known[i])


def test_the_reference_itself_agrees_with_tensorflow():
    """Outside the named rules the reference and TensorFlow's native kernels say the same: the judge is fit to judge."""
    sums = selections = 0
    for case in golden.cases():
        if is_refused(case) or our_rule(case) or case["kernels"] != "native":
            continue
        for want, recorded in zip(outcomes(case), golden.outputs(case)):
            if not want.is_sum:
                assert_same_bits(want.value.astype(want.dtype, copy=False), recorded, case["id"])
                selections += 1
            elif want.dtype.kind == "f":
                allowed = 48 * np.finfo(want.dtype).eps  # terms of size about 3, a rounding each
                assert (error_of(recorded, want.value) <= allowed).all(), case["id"]
                sums += 1
    assert selections > 300 and sums > 200
