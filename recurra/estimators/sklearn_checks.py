"""The checks of scikit-learn's `check_estimator` that do not apply to an estimator, with the reason.

The checks fit a small table of numbers with one sample per row. Classifier and regressor read the rows as series and
pass all checks but one; the other estimators take different data. `check_estimator(estimator,
expected_failed_checks=inapplicable_checks(estimator))` runs the rest.
"""

from sklearn.base import BaseEstimator

TABLE_CHECKS = (
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_empty_data_messages",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
)
REASONS = {
    "Forecaster": "a row is a step of a series, not a sample, and the table has too few steps",
    "SequenceTagger": "it takes sentences, lists of words with one tag each, not numbers",
    "LanguageModelEstimator": "it takes text, not numbers",
    "SequenceToSequence": "it takes pairs of texts, not numbers",
}


REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": "penalties are chosen by the prediction of left-out samples, and "
    "a sample that is there twice is predicted by its copy"
}
SINGLE_CHECKS = {
    "SequenceClassifier": REPEATED,
    "SequenceRegressor": REPEATED,
    "Forecaster": {"check_fit1d": "a 1-D array is a valid series for a forecaster"},
    "SequenceTagger": {"check_complex_data": "all numbers are refused, not only complex ones"},
    "LanguageModelEstimator": {"check_complex_data": "all numbers are refused, not only complex ones"},
    "SequenceToSequence": {"check_complex_data": "all numbers are refused, not only complex ones"},
}


def inapplicable_checks(estimator: BaseEstimator) -> dict[str, str]:
    """The checks that do not apply to an estimator: name → reason; empty if all apply.

    **Example**

        >>> reasons = rc.estimators.inapplicable_checks(rc.SequenceTagger())
        >>> "check_complex_data" in reasons, rc.estimators.inapplicable_checks(rc.SequenceClassifier()) == {}
        (True, False)
    """
    name = type(estimator).__name__
    tables = dict.fromkeys(TABLE_CHECKS, REASONS[name]) if name in REASONS else {}
    return tables | SINGLE_CHECKS.get(name, {})
