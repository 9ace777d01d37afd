"""What a reader tells about a table: sentinels, texts that training did not have, ids in two columns."""

import datetime

import numpy as np
import pytest

import recurra as rc
from recurra.data.data_errors import DataError, MissingColumnError


def sensors(x: list[float], colours: list[str]) -> str:
    """Eight sequences of five steps."""
    steps = [f"{k // 5},{k % 5},{x[k]:g},{colours[k]},{'up' if k // 5 % 2 else 'down'}" for k in range(40)]
    return "\n".join(["id,t,x,colour,label", *steps])


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "data.csv"):
        path = tmp_path / name
        path.write_text(text + "\n")
        return path

    return write


X = np.sin(np.arange(40.0)).tolist()
COLOURS = ["red", "blue"] * 20


@pytest.mark.parametrize("value", [-999, 9999, -99.9, 1e20, -32768])
def test_a_number_far_from_all_others_that_usually_means_missing_is_told(file, value):
    path = file(sensors([*X[:7], value, *X[8:20], value, *X[21:]], COLOURS))
    (note,) = rc.data.read(path).notes
    assert note.startswith(f"'x' has {value:.15g} 2 times (first in line 9), far from its other values, -0.9")
    assert note.endswith(f"if it means a missing value: --na {value:.15g}")
    problem = rc.infer_problem(path, na=str(value), fill="forward")
    assert np.abs(np.concatenate(problem.train[0])[:, 0]).max() < 1.1
    assert "note" not in dict(problem.summary)


def test_sentinels_in_the_steps_of_a_wide_file(file):
    rows = [f"{','.join(str(v) for v in X[k : k + 5])},{'up' if k % 2 else 'down'}" for k in range(12)]
    rows[4] = rows[4].replace(str(X[6]), "-9999")
    (note,) = rc.data.read(file("\n".join(["t0,t1,t2,t3,t4,label", *rows]))).notes
    assert note.startswith("'t' has -9999 once (first in line 6), far from")


def test_numbers_among_the_others_are_no_sentinels(file):
    large = [abs(v) * 12000 for v in X]
    assert rc.data.read(file(sensors([*large[:7], 9999, *large[8:]], COLOURS))).notes == ()


def test_texts_that_mean_missing(file):
    words = ["n.m.", *map(str, X[1:])]
    text = "\n".join(["id,t,x,label", *(f"{k // 5},{k % 5},{words[k]},{k // 5 % 2}" for k in range(40))])
    problem = rc.infer_problem(file(text), na=["n.m.", "-1"], missing="drop")
    assert min(map(len, [*problem.train[0], *problem.test[0]])) == 4


def test_a_category_that_training_did_not_have_is_told(file):
    problem = rc.infer_problem(file(sensors(X, COLOURS)))
    new = file(sensors(X, [*COLOURS[:38], "green", "green"]), "new.csv")
    assert rc.problem.read_like_training(new, problem.schema).notes == (
        "'colour' has 'green' in 2 rows, which training did not have; read as no category",
    )


# ---------------------------------------------------------------------------------------------------- two ids


def visits(header: str, ids: list[tuple[str, str]]) -> str:
    rows = [
        f"{a},{b},{t},{np.sin(t + k):.3f},{'up' if k % 2 else 'down'}" for k, (a, b) in enumerate(ids) for t in range(5)
    ]
    return "\n".join([header, *rows])


PAIRS = [(person, trial) for person in ("ann", "bob") for trial in ("01", "02", "1", "2")]


@pytest.mark.parametrize("id", ["person,visit", ("person", "visit"), "person+visit"])
def test_two_columns_identify_sequences(file, id):
    path = file(visits("person,visit,t,x,label", PAIRS))
    problem = rc.infer_problem(path, id=id)
    assert len(problem.train[0]) + len(problem.test[0]) == 8
    assert problem.schema["features"] == ["x"]
    assert rc.problem.read_like_training(path, problem.schema).names == [f"{a}/{b}" for a, b in PAIRS]


def test_a_label_may_be_a_part_of_the_id(file):
    pairs = [(person, activity) for person in ("1", "2", "3", "4") for activity in ("walk", "sit")]
    steps = "\n".join(line.rsplit(",", 1)[0] for line in visits("person,activity,t,x,label", pairs).splitlines())
    problem = rc.infer_problem(file(steps), id="person,activity", target="activity")
    assert (problem.task, problem.schema["inputs"]) == ("classify", ["x"])


def test_a_misspelt_part_of_an_id(file):
    with pytest.raises(MissingColumnError, match="vist"):
        rc.infer_problem(file(visits("person,visit,t,x,label", PAIRS)), id="person,vist")


def test_two_ids_by_their_names(file):
    problem = rc.infer_problem(file(visits("subject,trial,t,x,label", PAIRS)))
    assert problem.schema["id"] == "subject+trial"
    assert len(problem.train[0]) + len(problem.test[0]) == 8


@pytest.mark.parametrize("by_date", [False, True])
def test_two_ids_by_dates_that_repeat_within_each(file, by_date):
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(day) for day in range(40)]
    rows = [
        f"{day},{s},{i},{100 * s + 10 * i + k % 7}" for s in (1, 2) for i in (1, 2, 3) for k, day in enumerate(days)
    ]
    path = file("\n".join(["date,store,item,sales", *(sorted(rows) if by_date else rows)]))
    problem = rc.infer_problem(path, sort=by_date)
    assert problem.schema["id"] == "store+item"
    assert sorted(set(problem.train[0]["unique_id"].to_pylist())) == [f"{s}/{i}" for s in (1, 2) for i in (1, 2, 3)]


def test_an_activity_is_no_part_of_an_id(file):
    pairs = [(person, activity) for person in ("1", "2", "3") for activity in ("walk", "sit")]
    steps = "\n".join(line.rsplit(",", 1)[0] for line in visits("person,activity,t,x,label", pairs).splitlines())
    with pytest.raises(DataError):  # one reading of several; above all no forecast of x
        rc.infer_problem(file(steps))


def test_an_id_within_another_is_the_finer_one(file):
    path = file(visits("session,id,t,x,label", [(str(k // 4), str(k)) for k in range(8)]))
    assert rc.infer_problem(path).schema["id"] == "id"
