"""scikit-learn's own checks: all that can apply pass, and those that cannot are listed with a reason, none too many."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

import recurra as rc
from recurra.errors import InputError
from recurra.estimators import inapplicable_checks

OTHERS = [rc.Forecaster, rc.SequenceTagger, rc.LanguageModelEstimator, rc.SequenceToSequence]


@pytest.mark.filterwarnings("default")  # the checks themselves look at warnings
@pytest.mark.parametrize("kind", OTHERS)
def test_checks_pass_or_are_listed(kind):
    listed = inapplicable_checks(kind())
    results = check_estimator(kind(epochs=1), expected_failed_checks=listed, on_skip=None)  # raises on other failures
    by_status: dict[str, set[str]] = {}
    for result in results:
        by_status.setdefault(result["status"], set()).add(result["check_name"])
    assert by_status["xfail"] == set(listed)
    assert len(by_status["passed"]) >= 10
    assert by_status.get("skipped", set()) <= {"check_array_api_input"}
    assert all(listed.values())


def test_all_checks_but_one_apply_to_classifier_and_regressor():
    found = inapplicable_checks(rc.SequenceClassifier())
    assert list(found) == ["check_sample_weight_equivalence_on_dense_data"]
    assert found == inapplicable_checks(rc.SequenceRegressor())


def test_numbers_in_place_of_text_and_of_sentences_are_named():
    with pytest.raises(InputError, match=r"X\[1\]: got float, expected a text"):
        rc.LanguageModelEstimator().fit(["a text", 0.5])
    with pytest.raises(InputError, match=r"X\[0\]: got float, expected a sentence"):
        rc.SequenceTagger().fit([0.5], [["N"]])
    with pytest.raises(InputError, match=r"sentence 0: got 1 values, expected 2, one a word"):
        rc.SequenceTagger().fit(["a sentence"], [["N"]])  # a text is split into words
