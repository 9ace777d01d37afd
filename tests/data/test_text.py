"""Text, tagged text, .ts and columns of numbers, and which reader a file gets."""

import gzip
import json
import zipfile

import pytest
import torch

from recurra.data import format_of, read, read_conll, read_conllu, read_dat, read_text, read_ts
from recurra.data.data_errors import (
    DataError,
    EmptyFileError,
    EncodingError,
    FormatError,
    MissingValueError,
    RaggedRowError,
    UnseenLabelError,
)
from recurra.errors import InputError, OptionError, UnknownNameError

CONLL = "The D\ncat N\n\nA D\ndog N\nran V\n"
CONLLU = """# sent_id = one
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVBP\t_\t2\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t0\troot\t_\t_
2.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_

# sent_id = two
1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""
TS = """#about
@problemName Small
@timeStamps false
@univariate false
@dimensions 2
@classLabel true up down
@data
1,2,3:4,5,6:up
7,8:9,10:down
"""


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes, name: str):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_text_is_one_sequence_of_characters(file):
    data = read(file("\ufeffab\r\nba é", "text.txt"))
    assert data.task == "language"
    inputs = "".join(data.vocabulary[t] for t in data[0].inputs)
    targets = "".join(data.vocabulary[t] for t in data[0].target)
    assert (inputs, targets) == ("ab\nba ", "b\nba é")
    assert data.series.base[0].dtype == torch.uint8
    assert data[0].inputs.dtype == torch.int64


def test_words_and_rare_words(file):
    path = file("to be or not to be\n", "text.txt")
    data = read_text(path, level="word", least=2)
    assert [data.vocabulary[t] for t in data.series[0]] == ["to", "be", "<unk>", "<unk>", "to", "be", "<unk>"]


def test_words_are_whole_across_blocks(file, monkeypatch):
    monkeypatch.setattr("recurra.data.readers.text.text_blocks", lambda path, encoding: iter(["to b", "e or\nn", "ot"]))
    data = read_text(file("x", "text.txt"), level="word")
    assert [data.vocabulary[t] for t in data.series[0]] == ["to", "be", "or", "\n", "not"]


def test_a_character_never_seen_is_unknown_or_has_a_line(file):
    train = read_text(file("abc\nab", "train.txt"))
    test = read_text(file("ab\ncx", "test.txt"), vocabulary=train.vocabulary)
    assert [train.vocabulary[k] for k in test.series[0].tolist()] == ["a", "b", "\n", "c", "<unk>"]
    with pytest.raises(UnseenLabelError) as caught:
        read_text(file("ab\ncx", "test.txt"), vocabulary=train.vocabulary[1:])
    assert caught.value.line == 2


def test_other_encodings_by_name(file):
    path = file(b"caf\xe9 bar\n", "text.txt")
    with pytest.raises(EncodingError) as caught:
        read_text(path)
    assert caught.value.line == 1
    assert "é" in read_text(path, encoding="latin-1").vocabulary
    with pytest.raises(InputError, match="encoding"):
        read_text(path, encoding="latin-99")


def test_a_folder_with_a_file_for_each_class(file, tmp_path):
    (tmp_path / "names").mkdir()
    file("Ada\nEve\n", "names/English.txt")
    file("Ève\r\n\r\n", "names/French.txt")
    data = read(tmp_path / "names")
    assert (data.classes, data.targets.tolist(), data.texts) == (
        ("English", "French"),
        [0, 0, 1],
        ["Ada", "Eve", "Ève"],
    )
    assert "".join(data.vocabulary[t] for t in data[2].inputs) == "Ève"


def test_sentences_in_json(file):
    data = read(file(json.dumps([["a b c", "d e"], ["f g"]], indent=1), "sentences.json"))
    assert (data.task, data.lengths.tolist(), data.names) == ("language", [2, 1, 1], ["0/0", "0/1", "1/0"])
    assert data.texts[0] == ["a", "b", "c"]
    with pytest.raises(FormatError, match="a list of objects"):
        read(file(json.dumps({"dim": 4, "name": "x"}, indent=1), "options.json"))


@pytest.mark.parametrize("variant", ["plain", "crlf", "bom", "gzip"])
def test_conll_columns(file, variant):
    text = {"crlf": CONLL.replace("\n", "\r\n"), "bom": "\ufeff" + CONLL}.get(variant, CONLL)
    data = read(file(gzip.compress(text.encode()) if variant == "gzip" else text, "tags.txt"), format="conll")
    assert (data.task, data.classes, data.lengths.tolist()) == ("tagging", ("D", "N", "V"), [2, 3])
    assert data[1].target.tolist() == [0, 1, 2]
    assert [data.vocabulary[t] for t in data[1].inputs] == ["A", "dog", "ran"]
    assert data.texts[0] == ["The", "cat"]


def test_a_test_set_in_terms_of_the_training_set(file):
    train = read_conll(file(CONLL, "train.txt"))
    test = read_conll(file("The D\nfish N\n", "test.txt"), vocabulary=train.vocabulary, classes=train.classes)
    assert [test.vocabulary[t] for t in test[0].inputs] == ["The", "<unk>"]
    with pytest.raises(UnseenLabelError) as caught:
        read_conll(file("The D\nfish NN\n", "test.txt"), classes=train.classes)
    assert caught.value.line == 2


def test_ragged_conll(file):
    with pytest.raises(RaggedRowError) as caught:
        read_conll(file("a X\nb\n", "tags.txt"))
    assert caught.value.line == 2


def test_conllu_words_without_ranges_and_empty_nodes(file):
    data = read(file(CONLLU, "trees.conllu"))
    assert (data.names, data.texts) == (["one", "two"], [["do", "n't"], ["Go"]])
    assert data.classes == ("AUX", "PART", "VERB")
    assert read_conllu(file(CONLLU, "trees.conllu"), tag="deprel").classes == ("aux", "root")
    with pytest.raises(UnknownNameError, match="did you mean 'upos'"):
        read_conllu(file(CONLLU, "trees.conllu"), tag="uposs")
    with pytest.raises(RaggedRowError) as caught:
        read_conllu(file(CONLLU.replace("\troot\t_\t_\n2.1", "\troot\t_\n2.1"), "trees.conllu"))
    assert caught.value.line == 4


def test_ts_cases_are_ragged_and_multivariate(file):
    data = read(file(TS, "small.ts"))
    assert (data.task, data.classes, data.lengths.tolist()) == ("classification", ("up", "down"), [3, 2])
    assert data[0].inputs.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert data.targets.tolist() == [0, 1]


def test_ts_with_timestamps_targets_or_neither(file):
    stamped = TS.replace("@timeStamps false", "@timeStamps true").replace("1,2,3:4,5,6", "(0,1),(1,2):(0,3),(1,4)")
    stamped = stamped.replace("7,8:9,10", "(0,7):(0,9)")
    assert read_ts(file(stamped, "small.ts"))[0].inputs.tolist() == [[1, 3], [2, 4]]
    numbers = TS.replace("@classLabel true up down", "@targetLabel true").replace(":up", ":0.5").replace(":down", ":2")
    assert read_ts(file(numbers, "small.ts")).targets.tolist() == [[0.5], [2]]
    bare = TS.replace("@classLabel true up down", "@classLabel false").replace(":up", "").replace(":down", "")
    assert read_ts(file(bare, "small.ts")).task == "next_step"


def test_ts_gaps(file):
    path = file(TS.replace("1,2,3", "?,2,?"), "small.ts")
    with pytest.raises(MissingValueError) as caught:
        read_ts(path)
    assert (caught.value.line, caught.value.column) == (8, 1)
    assert read_ts(path, missing="fill")[0].inputs[:, 0].tolist() == [2, 2, 2]
    assert read_ts(path, missing="drop")[0].inputs.tolist() == [[2, 5]]


@pytest.mark.parametrize(
    ("old", "new", "error", "line"),
    [
        (":up", ":sideways", UnseenLabelError, 8),
        ("4,5,6", "4,5", RaggedRowError, 8),
        ("4,5,6:up", "4,5,6:7,8,9:up", RaggedRowError, 8),
        ("7,8", "7,x", FormatError, 9),
        ("@data\n", "", FormatError, 7),
        ("1,2,3:4,5,6:up\n7,8:9,10:down\n", "", EmptyFileError, None),
    ],
)
def test_ts_faults(file, old, new, error, line):
    with pytest.raises(error) as caught:
        read_ts(file(TS.replace(old, new), "small.ts"))
    assert caught.value.line == line


def test_columns_of_numbers(file):
    data = read(file("# counts\n1700 5\n1701 11\n1702 16\n", "spots.dat"))
    assert (data.features, data.times[0].tolist()) == (("f1",), [1700, 1701, 1702])
    assert data.series[0].flatten().tolist() == [5, 11, 16]


def test_a_year_by_month_table_is_a_monthly_series(file):
    months = "Year Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
    rows = "2000 " + " ".join(map(str, range(12))) + "\n\n2001 12 13\n\nNote: preliminary\n"
    data = read(file(f"SPOTS\n=====\n{months}\n-----\n{rows}", "monthly.dat"))
    assert data.series[0].flatten().tolist() == list(range(14))
    with pytest.raises(RaggedRowError) as caught:
        read_dat(file(f"{months}\n2000 1 2 3\n{rows}", "monthly.dat"))
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("content", "name", "format"),
    [
        (CONLL * 3, "no_suffix", "conll"),
        (CONLLU, "no_suffix", "conllu"),
        (TS, "no_suffix", "ts"),
        ('{"y": 1}\n{"y": 2}\n', "no_suffix", "jsonl"),
        ('["a b", "c d"]', "no_suffix", "sentences"),
        ("Once upon a time,\nthere was a king. He\nlived.\n", "no_suffix", "text"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "table.csv.gz", "csv"),
        ("a;b\n1;2\n", "TABLE.CSV", "csv"),
        (b"\x93NUMPY\x01\x00", "lying.csv", "npy"),
        (b"PAR1", "lying.txt", "parquet"),
    ],
)
def test_content_decides_before_the_name(file, content, name, format):
    assert format_of(file(content, name)) == format


def test_an_option_that_a_reader_does_not_have(file, tmp_path):
    file("abc\n", "a.txt")
    with pytest.raises(
        OptionError, match="id: got an unknown option of 'text_folder' data, expected one of classes, voca"
    ):
        read(tmp_path, id="run")
    with pytest.raises(OptionError, match="did you mean 'vocabulary'"):
        read(tmp_path, vocabluary=["a", "b", "c"])


def test_what_nothing_reads(file, tmp_path):
    with pytest.raises(FormatError, match="unknown binary format"):
        read(file(b"\x01\x02\0\x03" * 10, "no_suffix"))
    with pytest.raises(UnknownNameError, match="did you mean 'parquet'"):
        read(file("x", "x.txt"), format="parket")
    with pytest.raises(EmptyFileError):
        read(file("", "empty.txt"))
    with pytest.raises(DataError, match="no such file"):
        read("absent.txt")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("table.csv", "a,b")
    with pytest.raises(FormatError, match="a zip of other files"):
        read(tmp_path / "other.zip")
