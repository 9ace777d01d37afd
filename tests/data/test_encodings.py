"""Advice for texts that are not UTF-8: the encoding that makes words of the bytes."""

import pytest

import recurra as rc
from recurra.data.data_errors import EncodingError
from recurra.data.readers.encodings import likely_encodings

TEXTS = {
    "cp1251": "дата;продажи\nМосква;5\nСанкт-Петербург;3",
    "koi8-r": "дата;продажи\nМосква;5\nСанкт-Петербург;3",
    "shift_jis": "日付,売上\n東京,5\nりんご,3",
    "euc_jp": "日付,売上\n東京,5\nりんご,3",
    "gb18030": "日期,销售额\n北京,5\n上海的数据,3",
    "big5": "日期,銷售額\n臺北,5\n這是資料,3",
    "euc_kr": "날짜,매출\n서울,5\n부산광역시,3",
    "latin-1": "ville;prix\nOrléans;5\nMünchen;3",
    "cp1252": "saison;prix\nl’été;5 €\n",
    "cp1250": "město;cena\nPlzeň;5\nŽilina;3",
    "cp1253": "ημερομηνία;τιμή\nΑθήνα;5",
    "cp1254": "şehir;fiyat\nİstanbul;5",
    "cp1256": "تاريخ;سعر\nالقاهرة;5",
    "cp1255": "תאריך;מחיר\nירושלים;5",
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_first_advice_reads_the_text(name):
    raw = TEXTS[name].encode(name)
    assert raw.decode(likely_encodings(raw)[0][0]) == TEXTS[name]


def test_advice_shows_what_each_encoding_reads(tmp_path):
    path = tmp_path / "sales.csv"
    path.write_bytes("日付,売上\n2020-01-01,5\n".encode("shift_jis"))
    with pytest.raises(EncodingError, match=r"0x93 .*; use encoding=.shift_jis. if the file says '日付'"):
        rc.infer_problem(path)


def test_a_long_text_is_not_judged_by_half_a_letter(tmp_path):
    path = tmp_path / "sales.csv"
    path.write_bytes(("都市,売上\n" + "東京,5\n" * 5000 + "りんご,3\n").encode("shift_jis"))
    with pytest.raises(EncodingError, match="shift_jis"):
        rc.infer_problem(path)
