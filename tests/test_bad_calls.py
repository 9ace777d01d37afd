"""Every bad call raises an error of recurra that names the argument, what came and what was expected."""

import pytest
from bad_calls import BAD_CALLS, BadCall

import recurra as rc


@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")  # some of the steps cannot be traced either
@pytest.mark.parametrize("bad", BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_is_a_typed_error(bad: BadCall, tmp_path):
    with pytest.raises(rc.RecurraError) as caught:
        bad.call(tmp_path)
    message = str(caught.value)
    assert bad.argument in message
    assert "got " in message or "returned " in message
    assert "expected " in message


def test_the_table_has_a_call_of_every_room():
    """A table that lost its rows would pass."""
    rooms = {
        "LSTM",
        "Cell.affine",
        "explain",
        "read",
        "fit",
        "SequenceClassifier",
        "EchoStateNetwork",
        "CRF",
        "diagram",
    }
    assert rooms <= {name.partition("(")[0] for name in BAD_CALLS}
    assert len(BAD_CALLS) > 450
