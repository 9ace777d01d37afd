"""Writes `files/`: small tables as people have them, written by hand in the manner of well-known data sets.

Run `python tests/reading/write_files.py`; the files are committed. Numbers are drawn with a fixed seed. No file copies
published data: names of columns and ways to write dates follow statsmodels, vega, aeon, sktime, pandas and Excel.
"""

import gzip
import json
import math
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from reading.more_files import GROUPS as MORE

FOLDER = Path(__file__).parent / "files"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
rng = np.random.default_rng(0)


def series(count: int, season: int = 12) -> list[float]:
    wave = 10 + 3 * np.sin(2 * np.pi * np.arange(count) / season) + 0.1 * rng.normal(size=count)
    return [round(float(value), 2) for value in wave]


def recordings(sequences: int = 12, steps: int = 4) -> list[tuple[int, int, float, float, str]]:
    """(id, step, x, y, label): label "up" has positive x."""
    rows = []
    for k in range(sequences):
        sign = 1 if k % 2 else -1
        for t in range(steps + k % 2):
            rows.append((k, t, round(sign + 0.1 * rng.normal(), 3), round(rng.normal(), 3), "up" if k % 2 else "down"))
    return rows


def lines(rows: Iterable[Iterable[object]], sign: str = ",") -> str:
    return "".join(sign.join(str(value) for value in row) + "\n" for row in rows)


def months(count: int, how: Callable[[int, int], str], first: int = 1949) -> list[str]:
    return [how(first + k // 12, k % 12 + 1) for k in range(count)]


def days(count: int, how: str, first: date = date(2012, 1, 1), step: int = 1) -> list[str]:
    return [(first + timedelta(days=step * k)).strftime(how) for k in range(count)]


def dated(dates: list[str], header: str = "date,value", sign: str = ",", season: int = 12) -> str:
    return header + "\n" + lines(zip(dates, series(len(dates), season), strict=True), sign)


def one_series() -> dict[str, str]:
    """Series with dates as people write them."""
    quarters = [(1959 + k // 4, k % 4 + 1) for k in range(40)]
    hours = [(datetime(2024, 1, 1) + timedelta(hours=k)).strftime("%Y-%m-%d %H:%M:%S") for k in range(72)]
    return {
        "year_month.csv": dated(months(48, lambda y, m: f"{y}-{m:02d}"), "Month,Passengers"),
        "slashes.csv": dated(days(60, "%Y/%m/%d"), "date,temp_max", season=7),
        "german_dates.csv": dated(months(48, lambda y, m: f"01.{m:02d}.{y}"), "Datum,Wert"),
        "month_names.csv": dated(months(48, lambda y, m: f"{MONTHS[m - 1]} {y}")),
        "month_day_names.csv": dated(days(60, "%b %d %Y"), season=7),
        "quarters.csv": dated([f"{y} Q{q}" for y, q in quarters], season=4),
        "quarters_joined.csv": dated([f"{y}Q{q}" for y, q in quarters], season=4),
        "year_quarter_columns.csv": "year,quarter,realgdp\n"
        + lines((y, q, v) for (y, q), v in zip(quarters, series(40, 4), strict=True)),
        "year_month_columns.csv": "year,month,rain\n"
        + lines((1990 + k // 12, k % 12 + 1, v) for k, v in enumerate(series(48))),
        "compact_weekly.csv": dated(days(60, "%Y%m%d", date(1958, 3, 29), 7), "date,co2"),
        "weekly.csv": dated(days(60, "%Y-%m-%d", date(2020, 1, 6), 7), "ds,y"),
        "month_ends.csv": dated(
            [(date(2018 + (k + 1) // 12, (k + 1) % 12 + 1, 1) - timedelta(days=1)).isoformat() for k in range(48)]
        ),
        "business_days.csv": dated([str(d) for d in np.busday_offset("2024-01-01", range(60))], season=5),
        "hourly.csv": dated(hours, "timestamp,load", season=24),
        "time_zones.csv": dated(
            [(datetime(2024, 1, 1) + timedelta(hours=k)).strftime("%Y-%m-%dT%H:%M:%S+02:00") for k in range(72)],
            "time,load",
            season=24,
        ),
        "date_and_clock.csv": "date,time,load\n"
        + lines((h[:10], h[11:], v) for h, v in zip(hours, series(72, 24), strict=True)),
        "years.csv": "YEAR,SUNACTIVITY\n" + lines((1700 + k, v) for k, v in enumerate(series(60, 11))),
        "day_first.csv": dated(days(60, "%d/%m/%Y"), season=7),
        "month_first.csv": dated(days(60, "%m/%d/%Y"), season=7),
        "ambiguous.csv": dated(months(48, lambda y, m: f"{m:02d}/01/{y}")),
        "ambiguous_day_first.csv": dated(months(48, lambda y, m: f"01/{m:02d}/{y}")),
        "pandas_dates.csv": dated(days(60, "%Y-%m-%d"), ",value", season=7),
        "no_header.csv": lines((d, v) for d, v in zip(days(60, "%Y-%m-%d"), series(60, 7), strict=True)),
        "only_values.csv": "value\n" + lines((v,) for v in series(60)),
        "numbers.txt": "\n".join(f"{v}" for v in series(60)) + "\n",
        "columns.txt": "".join(f"{1900 + k}  {v}\n" for k, v in enumerate(series(60, 11))),
        "table.txt": dated(days(60, "%Y-%m-%d"), "date\tvalue", "\t", 7),
    }


def troubled_series() -> dict[str, str | bytes]:
    gap = [d for k, d in enumerate(days(60, "%Y-%m-%d")) if k not in (20, 21)]
    double = days(60, "%Y-%m-%d")
    double[30] = double[29]
    mixed = days(60, "%Y-%m-%d")
    mixed[10], mixed[11] = mixed[11], mixed[10]
    stray = dated(days(60, "%Y-%m-%d"), season=7).splitlines()
    stray[40] = stray[40].split(",")[0] + ",n.a.?"
    holes = dated(days(60, "%Y-%m-%d"), season=7).splitlines()
    holes[15] = holes[15].split(",")[0] + ","
    bad = days(60, "%Y-%m-%d")
    bad[5] = "sometime"
    return {
        "gap.csv": dated(gap, season=7),
        "gap_filled.csv": dated(gap, season=7),
        "duplicate.csv": dated(double, season=7),
        "unsorted.csv": dated(mixed, season=7),
        "unsorted_sorted.csv": dated(mixed, season=7),
        "stray_text.csv": "\n".join(stray) + "\n",
        "missing_value.csv": "\n".join(holes) + "\n",
        "missing_value_filled.csv": "\n".join(holes) + "\n",
        "bad_date.csv": dated(bad, season=7),
    }


def panels() -> dict[str, str]:
    shops = [(s, d, v, p) for s in ("north", "south") for d, v, p in _shop()]
    return {
        "shops.csv": "shop,date,sold\n" + lines((s, d, v) for s, d, v, _ in shops),
        "shops_price.csv": "shop,date,price,sold\n" + lines((s, d, p, v) for s, d, v, p in shops),
        "shops_weather.csv": "shop,date,weather,sold\n"
        + lines((s, d, ("sun", "rain")[k % 3 == 0], v) for k, (s, d, v, _) in enumerate(shops)),
        "two_targets.csv": "shop,date,sold,returned\n" + lines((s, d, v, round(v / 10, 3)) for s, d, v, _ in shops),
        "shops_visitors.csv": "shop,kind,date,visitors,sold\n"
        + lines((s, f"{s}ern", d, int(10 * v) % 7, v) for s, d, v, _ in shops),
        "long_format.csv": "unique_id,ds,y\n" + lines((s, d, v) for s, d, v, _ in shops),
        "monash.tsf": "# made up\n@relation demo\n@attribute series_name string\n@attribute start_timestamp date\n"
        "@frequency monthly\n@horizon 6\n@missing false\n@equallength true\n@data\n"
        + "".join(f"T{k}:1990-01-01 00-00-00:{','.join(map(str, series(48)))}\n" for k in (1, 2)),
    }


def _shop() -> list[tuple[str, float, float]]:
    return list(zip(days(60, "%Y-%m-%d"), series(60, 7), [round(1 + 0.1 * (k % 5), 1) for k in range(60)], strict=True))


def sequences() -> dict[str, str]:
    rows = recordings()
    noise = sorted(((k, round(rng.normal(), 3), "ab"[k // 20]) for k in range(40)), key=lambda row: row[2])
    amounts = [
        (f"p{k}", round(a + 0.1 * rng.normal(), 3), round(2 * a, 3)) for k in range(12) for a in [rng.normal()] * 4
    ]
    text = [(k, ("red", "blue")[(k + t) % 2], x, label) for k, t, x, _, label in rows]
    stray = ["id,x,label", *(f"s{k // 4},{k % 7},{'ab'[k // 4 % 2]}" for k in range(1000))]
    stray[777] = "s194,oops,a"
    return {
        "sensors.csv": "id,t,x,y,label\n" + lines(rows),
        "sensors_pandas.csv": ",id,x,label\n" + lines((n, k, x, label) for n, (k, _, x, _, label) in enumerate(rows)),
        "noise_sorted_by_label.csv": ",id,x,label\n" + lines((n, k // 4, x, c) for n, (k, x, c) in enumerate(noise)),
        "float_labels.csv": "id,x,label\n" + lines((k, x, float(k % 4)) for k, _, x, _, _ in recordings(24)),
        "integer_target.csv": "id,x,target\n" + lines((k, x, k % 3) for k, _, x, _, _ in recordings(24)),
        "amounts.csv": "id,x,amount\n" + lines(amounts),
        "text_input.csv": "id,colour,x,label\n" + lines(text),
        "free_text.csv": "id,note,x,label\n"
        + lines((k, f"note {n} on this", x, c) for n, (k, _, x, _, c) in enumerate(rows)),
        "leading_zeros.csv": "id,x,label\n" + lines((f"{k:03d}", x, c) for k, _, x, _, c in rows),
        "label_per_row.csv": "id,x,label\n" + lines((k, x, "ab"[t % 2]) for k, t, x, _, _ in rows),
        "steps_of_persons.csv": "person,second,speed,device,activity\n"
        + lines((f"p{k}", t, x, ("wrist", "hip")[k % 2], ("walk", "run")[(k + t) % 2]) for k, t, x, _, _ in rows),
        "labels_over_time.csv": "date,x,label\n"
        + lines((d, x, "ab"[x > 0]) for d, (_, _, x, _, _) in zip(days(len(rows), "%Y-%m-%d"), rows, strict=True)),
        "label_without_id.csv": "x,label\n" + lines((x, "ab"[t % 2]) for _, t, x, _, _ in rows),
        "persons.csv": "person,second,speed,activity\n" + lines((f"p{k}", t, x, c) for k, t, x, _, c in rows),
        "interleaved.csv": "id,t,x,label\n"
        + lines((k, t, x, c) for k, t, x, _, c in sorted(rows, key=lambda row: (row[1], row[0]))),
        "one_in_a_thousand.csv": "\n".join(stray) + "\n",
        "constant_id_column.csv": "id,age,x,label\n" + lines((k, 20 + k, x, c) for k, _, x, _, c in rows),
    }


def wide_tables() -> dict[str, str]:
    def row(k: int, steps: int = 6) -> list[float]:
        return [round((1 if k % 2 else -1) + 0.1 * rng.normal(), 3) for _ in range(steps)]

    names = [f"t{t}" for t in range(6)]
    labelled = [("ab"[k % 2], row(k)) for k in range(20)]
    arff = "@relation demo\n" + "".join(f"@attribute att{t} numeric\n" for t in range(6))
    relational = "@relation multi\n@attribute rel relational\n@attribute a numeric\n@attribute b numeric\n@end rel\n"
    return {
        "wide.csv": lines([["label", *names], *([c, *r] for c, r in labelled)]),
        "wide_id.csv": lines([["id", "label", *names], *([f"p{k}", c, *r] for k, (c, r) in enumerate(labelled))]),
        "wide_static.csv": lines(
            [["id", "age", "sex", "label", *names]]
            + [[f"p{k}", 30 + k, "mf"[k % 2], c, *r] for k, (c, r) in enumerate(labelled)]
        ),
        "wide_two_channels.csv": lines(
            [["label", *(f"{c}_{t}" for t in range(4) for c in "xy")], *(["ab"[k % 2], *row(k, 8)] for k in range(20))]
        ),
        "wide_pandas.csv": lines([["", *range(6), "label"], *([k, *r, c] for k, (c, r) in enumerate(labelled))]),
        "wide_gap.csv": lines(
            [["label", *names], *([c, *r[:2], "" if k == 7 else r[2], *r[3:]] for k, (c, r) in enumerate(labelled))]
        ),
        "wide_no_target.csv": lines([["f", *names], *([k * 0.5, *r] for k, (_, r) in enumerate(labelled))]),
        "headless_wide.csv": lines([[*r, c] for c, r in labelled]),
        "archive.arff": arff + "@attribute target {a,b}\n@data\n" + lines([*r, c] for c, r in labelled),
        "archive_multi.arff": relational
        + "@attribute classAttribute {a,b}\n@data\n"
        + "".join(f"'{','.join(map(str, row(k)))}\\n{','.join(map(str, row(k)))}',{'ab'[k % 2]}\n" for k in range(20)),
        "archive.ts": "@problemName demo\n@timeStamps false\n@univariate true\n@classLabel true a b\n@data\n"
        + "".join(f"{','.join(map(str, r))}:{c}\n" for c, r in labelled),
    }


def ways_of_writing() -> dict[str, str | bytes]:
    rows = recordings()
    european = "Datum;Temperatur;Umsatz\n" + lines(
        ((d, str(v).replace(".", ","), f"{1 + k // 9}.{k * 17 % 1000:03d},50") for k, (d, v) in enumerate(
            zip(days(60, "%d.%m.%Y"), series(60, 7), strict=True))), ";")  # fmt: skip
    thousands = "date,sales\n" + lines(
        (d, f'"{1 + k % 9},{k * 37 % 1000:03d}"') for k, d in enumerate(days(60, "%Y-%m-%d"))
    )
    records = [{"id": k, "x": x, "label": c} for k, _, x, _, c in rows]
    accents = "id,x,label\n" + lines((k, x, "été" if c == "up" else "hiver") for k, _, x, _, c in rows)
    return {
        "european.csv": european,
        "thousands.csv": thousands,
        "records.json": json.dumps(records),
        "lines.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "latin1.csv": accents.encode("latin-1"),
        "latin1_told.csv": accents.encode("latin-1"),
        "utf16.csv": accents.encode("utf-16"),
        "utf16_told.csv": accents.encode("utf-16"),
        "pipes.data": lines([("id", "x", "label"), *((k, x, c) for k, _, x, _, c in rows)], "|"),
        "comments.csv": "# made by a logger\n# version 2\nid,x,label\n" + lines((k, x, c) for k, _, x, _, c in rows),
        "compressed.csv.gz": gzip.compress(
            ("id,x,label\n" + lines((k, x, c) for k, _, x, _, c in rows)).encode(), mtime=0
        ),
        "page.txt": "<!DOCTYPE html>\n<html><body>" + "words " * 50 + "</body></html>\n",
        "document.txt": b"%PDF-1.4\n" + b"words " * 50,
        "pickle.txt": b"\x80\x04\x95" + b"words " * 50,
        "old_excel.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "prose.txt": "the cat sat on the mat, and the dog ran.\nit was late.\n" * 12,
    }


def dumps() -> dict[str, str]:
    """Tables as archives and programs write them: without a header, with an index, with numbers as text."""
    waves = [[round(math.sin(k + 0.7 * t) + k % 2 + 0.001, 3) for t in range(6)] for k in range(20)]
    values = [round(10 + 5 * math.sin(k / 2), 3) for k in range(60)]
    arff = "@relation codes\n" + "".join(f"@attribute att{t} numeric\n" for t in range(6))
    shuffled = [7 * k % 40 for k in range(40)]
    clock = [[f"(2007-01-01 {t:02d}:00:00,{v})" for t, v in enumerate(wave)] for wave in waves]
    return {
        "headless_class_first.tsv": lines(([k % 2 + 1, *wave] for k, wave in enumerate(waves)), "\t"),
        "headless_counted.csv": lines((k + 1, v) for k, v in enumerate(values)),
        "unnamed_series.csv": ",0\n" + lines((1821 + k, v) for k, v in enumerate(values)),
        "shuffled_index.csv": ",id,x,label\n"
        + lines((n, k // 4, values[k], "ab"[k // 20]) for k, n in enumerate(shuffled)),
        "wide_numbers.csv": lines([[*(f"t{t}" for t in range(6)), "target"], *([*r, sum(r)] for r in waves)]),
        "codes.arff": arff
        + "@attribute target {1,2}\n@data\n"
        + lines([*wave, k % 2 + 1] for k, wave in enumerate(waves)),
        "clock.ts": "% written by hand\n@timeStamps true\n@univariate true\n@classLabel true a b\n@data\n"
        + "".join(f"{','.join(pairs)}:{'ab'[k % 2]}\n" for k, pairs in enumerate(clock)),
        "numbers_as_text.json": json.dumps([{"year": str(1565 + 5 * k), "wheat": v} for k, v in enumerate(values)]),
        "names_of_rows.csv": "state,violent,murder,poverty\n"
        + lines((f"state {k}", *wave[:3]) for k, wave in enumerate(waves)),
        "anomalies.csv": "timestamp,value,is_anomaly\n" + lines((k, v, int(k % 20 == 7)) for k, v in enumerate(values)),
        "label_at_the_end.csv": "date,x,label\n"
        + lines((d, v, int(k > 50)) for k, (d, v) in enumerate(zip(days(60, "%Y-%m-%d"), values, strict=True))),
    }


def columns_apart() -> dict[str, str]:
    """Columns apart by white space, and a cell of blanks."""
    values = [round(10 + 5 * math.sin(k / 2), 3) for k in range(60)]
    years = [(1900 + k, v) for k, v in enumerate(values)]
    dates = list(zip(days(60, "%Y-%m-%d"), values, strict=True))
    return {
        "spaces.csv": "'year' 'sun'\n" + lines(years, " "),
        "tabs.dat": "date\tvalue\n" + lines(dates, "\t"),
        "preface.asc": "Sunspots of sixty years, two columns:\nthe year, and the number.\n\nBEGIN THE DATA\n\n"
        + lines(years, "  "),
        "names_and_spaces.dat": lines((("MLO", *row) for row in years), "  "),
        "r_table.txt": '        "year" "sun"\n'
        + lines(((f'"row {k}"', year, "NA" if k == 14 else value) for k, (year, value) in enumerate(years)), " "),
        "names_and_blanks.txt": "station year sun\n" + lines((("MLO", *row) for row in years), "\t "),
        "blank_value.csv": "date,value\n" + lines((d, "  " if k == 14 else v) for k, (d, v) in enumerate(dates)),
    }


def write_excel(path: Path, title: bool = False, notes: bool = False) -> None:
    """A workbook; its sheet may have a `title` above the names, and a sheet of `notes` before it."""
    import zipfile

    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    if notes:
        lines_of_text = (["note"], ["measured by hand"], ["in metres"])
        for row in lines_of_text:
            sheet.append(row)
        sheet = book.create_sheet("data")
    for row in [["Measurements of 2012"], []] if title else []:
        sheet.append(row)
    sheet.append(["id", "x", "label"])
    for k, _, x, _, c in recordings():
        sheet.append([k, float(x), c])
    book.save(path)
    with zipfile.ZipFile(path) as old:  # the same bytes in every run
        parts = {name: old.read(name) for name in old.namelist() if name != "docProps/core.xml"}
    with zipfile.ZipFile(path, "w") as new:
        for name, content in parts.items():
            new.writestr(zipfile.ZipInfo(name), content)


def write_all(folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    groups = (one_series, troubled_series, panels, sequences, wide_tables, ways_of_writing, dumps, columns_apart)
    for group in (*groups, *MORE):
        for name, content in group().items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    write_excel(folder / "sheet.xlsx")
    write_excel(folder / "title.xlsx", title=True)
    write_excel(folder / "two_sheets.xlsx", notes=True)
    write_excel(folder / "two_sheets_told.xlsx", notes=True)


if __name__ == "__main__":
    write_all()
