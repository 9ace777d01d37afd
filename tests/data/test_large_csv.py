"""A delimited text too large for memory is read block by block, and like the same text read at once."""

from pathlib import Path

import pytest

import recurra as rc
from recurra.data.data_errors import DataError, EncodingError, FormatError
from recurra.data.readers import column_conversion, csv

FILES = Path(__file__).parents[1] / "reading" / "files"
ROWS = 600


@pytest.fixture
def in_blocks(monkeypatch):
    """Reads every text in blocks of 2,000 bytes, and finds conversions in 100 rows."""
    whole = csv.arrow_csv.ReadOptions
    monkeypatch.setattr(csv, "IN_MEMORY", 0)
    monkeypatch.setattr(column_conversion, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(csv.arrow_csv, "ReadOptions", lambda **options: whole(block_size=2000, **options))


def _reading(path: Path) -> object:
    try:
        problem = rc.infer_problem(path)
    except DataError as error:
        return type(error), str(error)
    return problem.task, problem.summary, problem.columns


@pytest.mark.parametrize(
    "name",
    [
        "noise_sorted_by_label.csv",  # an index without a name is no input
        "persons.csv",  # seconds that are whole numbers are times
        "unnamed_series.csv",
        "year_to_hour.csv",
        "thousands_or_decimals.csv",  # 1.000 has two readings
        "european.csv",
        "headless_counted.csv",
    ],
)
def test_columns_have_the_same_roles(name, monkeypatch):
    at_once = _reading(FILES / name)
    monkeypatch.setattr(csv, "IN_MEMORY", 0)
    assert _reading(FILES / name) == at_once


@pytest.mark.parametrize(
    ("late", "message"),
    [
        ("oops", r"line 582, column 'x': got 'oops' in sequence '58', expected a number"),
        ("", "line 582, column 'x': got nothing"),
    ],
)
def test_a_late_fault_has_its_line(tmp_path, in_blocks, late, message):
    rows = "".join(f"{k // 10},{late if k == 580 else k % 7},{'pq'[k // 10 % 2]}\n" for k in range(ROWS))
    path = tmp_path / "late.csv"
    path.write_text("id,x,label\n" + rows)
    with pytest.raises(DataError, match=message):
        rc.infer_problem(path)


def test_a_late_date_in_another_notation_has_its_line(tmp_path, in_blocks):
    rows = "".join(f"{'soon' if k == 580 else f'{k % 28 + 1:02}.{k // 28 + 1:02}.2001'},{k}\n" for k in range(300))
    path = tmp_path / "dates.csv"
    path.write_text("date,v\n" + rows + rows.replace("01.2001", "soon"))
    with pytest.raises(FormatError, match=r"line \d+, column 'date': got '.*soon', expected a value written like"):
        rc.infer_problem(path)


def test_types_and_quoted_line_ends_of_later_blocks(tmp_path, in_blocks):
    """Whole numbers that become decimal, a column that is empty at first, and names of sequences that become text."""
    rows = "".join(
        f'{k // 10 if k < 500 else f"s{k // 10}"},{k % 7 if k < 500 else 0.5},"a\nb {k % 3}",{"pq"[k // 10 % 2]}\n'
        for k in range(ROWS)
    )
    path = tmp_path / "later.csv"
    path.write_text("id,x,note,label\n" + rows)
    problem = rc.infer_problem(path)
    assert [(column.name, column.role) for column in problem.columns] == [
        ("id", "id"),
        ("x", "input"),
        ("note", "categorical input"),
        ("label", "target"),
    ]
    assert len(problem.train[0]) + len(problem.test[0]) == ROWS // 10


@pytest.mark.parametrize("digits", [9_007_199_254_740_993, 10**29])
@pytest.mark.parametrize("blocks", [False, True])
def test_ids_keep_all_their_digits(tmp_path, request, digits, blocks):
    """Two ids that are one number in floating point are two sequences."""
    if blocks:
        request.getfixturevalue("in_blocks")
    rows = "".join(f"{digits + k // 4},{k % 3},{'pq'[k // 4 % 2]}\n" for k in range(80))
    path = tmp_path / "ids.csv"
    path.write_text("id,x,label\n" + rows)
    problem = rc.infer_problem(path)
    assert (problem.task, len(problem.train[0]) + len(problem.test[0])) == ("classify", 20)


def test_ids_with_leading_zeros_are_different_ids(tmp_path):
    rows = "".join(f"{id},{k},{'pq'[n % 2]}\n" for n, id in enumerate(["1", "01", "001", "2", "02"]) for k in range(4))
    path = tmp_path / "zeros.csv"
    path.write_text("id,x,label\n" + rows)
    problem = rc.infer_problem(path)
    assert (problem.task, len(problem.train[0]) + len(problem.test[0])) == ("classify", 5)


@pytest.mark.parametrize("blocks", [False, True])
def test_bytes_that_are_no_utf8_are_an_error_wherever_they_stand(tmp_path, request, blocks):
    """pyarrow makes a column of bytes of them, which was left out: another column became the target."""
    if blocks:
        request.getfixturevalue("in_blocks")
    rows = "".join(
        f"{k // 10},{k % 7},{'thé' if k >= 590 else 'tea' if k // 10 % 2 else 'wine'}\n" for k in range(ROWS)
    )
    path = tmp_path / "late.csv"
    path.write_bytes(("id,x,label\n" + rows).encode("latin-1"))
    with pytest.raises(EncodingError, match="line 592: got byte 0xe9"):
        rc.infer_problem(path)


def test_a_date_written_twice_makes_no_id_of_numbers(tmp_path):
    rows = "".join(f"2001-{k // 28 + 1:02}-{k % 28 + 1:02},{k % 13},{k * 0.5}\n" for k in range(100))
    path = tmp_path / "twice.csv"
    path.write_text("date,v,w\n" + rows.replace("2001-02-05", "2001-02-04"))
    with pytest.raises(DataError, match="several possible targets"):
        rc.infer_problem(path)
    with pytest.raises(DataError, match=r"column 'date': got 2001-02-04 twice"):
        rc.infer_problem(path, target="w")
