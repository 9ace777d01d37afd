"""Checks of scikit-learn that cannot apply to an estimator, and why.

They hand over a small table of numbers, a row a sample. Classifier and regressor read such rows as series and pass all
checks; the others read something else. `expected_failed_checks=inapplicable_checks(estimator)` in scikit-learn's
`check_estimator` runs the rest.
"""

from sklearn.base import BaseEstimator

FITTED_TO_A_TABLE = (
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
    "Forecaster": "a row is a step of a series, not a sample, and the table has too few of them to forecast from",
    "SequenceTagger": "it reads sentences, lists of words with a tag for each, and the table has numbers",
    "LanguageModelEstimator": "it reads text, and the table has numbers",
}


ALONE = {
    "Forecaster": {"check_fit1d": "one column of numbers is refused by others, and a series to a forecaster"},
    "SequenceTagger": {"check_complex_data": "all numbers are refused, real ones too"},
    "LanguageModelEstimator": {"check_complex_data": "all numbers are refused, real ones too"},
}


def inapplicable_checks(estimator: BaseEstimator) -> dict[str, str]:
    """Check → reason; empty where all of them apply."""
    name = type(estimator).__name__
    return dict.fromkeys(FITTED_TO_A_TABLE, REASONS[name]) | ALONE.get(name, {}) if name in REASONS else {}
