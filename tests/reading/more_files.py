"""More of the files that `write_files.py` writes: as spreadsheets, R, loggers, pandas and polars write them."""

import json
import math
from collections.abc import Callable, Iterable
from datetime import date, timedelta

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
GERMAN = ("Jan", "Feb", "Mär", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez")
VALUES = [round(10 + 5 * math.sin(k / 2), 2) for k in range(96)]
DAYS = [date(2012, 1, 1) + timedelta(days=k) for k in range(60)]
YEAR_MONTHS = [(1996 + k // 12, k % 12 + 1) for k in range(48)]


def lines(rows: Iterable[Iterable[object]], sign: str = ",") -> str:
    return "".join(sign.join(str(value) for value in row) + "\n" for row in rows)


def table(header: str, first: Iterable[object], values: Iterable[object] = VALUES, sign: str = ",") -> str:
    return header + "\n" + lines(zip(first, values, strict=False), sign)


def daily(how: str) -> list[str]:
    return [day.strftime(how) for day in DAYS]


def monthly(how: Callable[[int, int], str]) -> list[str]:
    return [how(year, month) for year, month in YEAR_MONTHS]


def dates() -> dict[str, str]:
    """Two digits for a year, names of months in other languages, numbers that are times."""
    return {
        "month_and_short_year.csv": table("month,value", monthly(lambda y, m: f"{MONTHS[m - 1]}-{y % 100:02d}")),
        "day_month_short_year.csv": table("date,value", [f"{d.day}-{MONTHS[d.month - 1]}-{d:%y}" for d in DAYS]),
        "short_years.csv": table("date,value", daily("%d.%m.%y")),
        "short_slashes.csv": table("date,value", daily("%m/%d/%y")),
        "short_ambiguous.csv": table("date,value", monthly(lambda y, m: f"{m:02d}/01/{y % 100:02d}")),
        "german_months.csv": table("Monat;Wert", monthly(lambda y, m: f"{GERMAN[m - 1]} {y}"), sign=";"),
        "unix_seconds.csv": table("timestamp,load", (1609459200 + 3600 * k for k in range(72))),
        "unix_milliseconds.csv": table("timestamp,load", (1609459200000 + 3600000 * k for k in range(72))),
        "years_with_decimals.csv": ',"time","value"\n'
        + lines((f'"{k + 1}"', f"{1949 + k / 12:.10g}", v) for k, v in enumerate(VALUES[:60])),
        "clock_with_jitter.csv": table("time,value", (f"{0.02 * k + 0.0002 * (k % 3):.4f}" for k in range(60))),
    }


def parts_of_dates() -> dict[str, str]:
    hours = [(2010, 1, 1 + k // 24, k % 24) for k in range(96)]
    return {
        "year_and_month_name.csv": "Year,Month,Sales\n"
        + lines((y, date(y, m, 1).strftime("%B"), v) for (y, m), v in zip(YEAR_MONTHS, VALUES, strict=False)),
        "year_and_quarter_text.csv": "year,quarter,gdp\n"
        + lines((1990 + k // 4, f"Q{k % 4 + 1}", v) for k, v in enumerate(VALUES[:40])),
        "yr_mo_day.csv": "yr,mo,day,value\n"
        + lines((d.year, d.month, d.day, v) for d, v in zip(DAYS, VALUES, strict=False)),
        "day_of_year.csv": "year,doy,value\n" + lines((2001, k + 1, v) for k, v in enumerate(VALUES[:60])),
        "year_to_hour.csv": "No,year,month,day,hour,pm2.5\n"
        + lines((k + 1, *h, VALUES[k]) for k, h in enumerate(hours)),
        "date_and_hour.csv": "dteday,hr,cnt\n"
        + lines((f"2011-01-{h[2]:02d}", h[3], VALUES[k]) for k, h in enumerate(hours)),
    }


def spreadsheets() -> dict[str, str | bytes]:
    """Units, thousands, lines above the names, line ends of old programs, encodings."""
    texts = [f"{v:.2f}".replace(".", ",") for v in VALUES]
    points = [f"{1 + k // 9}.{k * 137 % 1000:03d}" for k in range(60)]
    plain = table("date,value", DAYS)
    return {
        "euros.csv": table("Datum;Umsatz", daily("%d.%m.%Y"), (f"{v} €" for v in texts), ";"),
        "dollars.csv": table("date,price", DAYS, (f'"${1000 + 13.5 * k:,.2f}"' for k in range(60))),
        "percent.csv": table("date,share", DAYS, (f"{v}%" for v in VALUES)),
        "thousands_or_decimals.csv": table("Datum;Umsatz", daily("%d.%m.%Y"), points, ";"),
        "thousands_told.csv": table("Datum;Umsatz", daily("%d.%m.%Y"), points, ";"),
        "separator_line.csv": "sep=;\n" + table("Datum;Wert", daily("%d.%m.%Y"), sign=";"),
        "title_lines.csv": "Station: Hamburg\nUnit: mm\n\n" + plain,
        "old_line_ends.csv": plain.replace("\n", "\r"),
        "footer.csv": plain + "Source: the station\n",
        "cp1252.csv": table("date,value", DAYS, (f"{v} €" for v in VALUES)).encode("cp1252"),
        "utf16_without_mark.csv": plain.encode("utf-16-le"),
        "infinite.csv": plain.replace(f"2012-01-10,{VALUES[9]}", "2012-01-10,inf"),
        "named_index.csv": table("Month,0", DAYS),
        "blanks_around_labels.csv": "id, x, label\n"
        + lines((k // 4, VALUES[k], ("up", " up", "down", "down ")[k // 4 % 4]) for k in range(48)),
        "names_of_sequences.csv": "id,person,x,label\n"
        + lines((k // 4, f"person {k // 4}", VALUES[k], "ab"[k // 4 % 2]) for k in range(48)),
    }


def json_tables() -> dict[str, str]:
    """The orientations of pandas' `to_json`, and records inside an object."""
    rows = [{"id": k // 4, "x": VALUES[k], "label": "ab"[k // 4 % 2]} for k in range(48)]
    by_column = {name: [row[name] for row in rows] for name in rows[0]}
    split = {"columns": list(rows[0]), "index": list(range(48)), "data": [list(row.values()) for row in rows]}
    steps = [{"id": k, "steps": [{"x": v, "y": -v} for v in VALUES[:4]], "label": "ab"[k % 2]} for k in range(12)]
    return {
        "orient_columns.json": json.dumps({n: {str(k): v for k, v in enumerate(c)} for n, c in by_column.items()}),
        "orient_index.json": json.dumps({str(k): row for k, row in enumerate(rows)}),
        "orient_split.json": json.dumps(split),
        "orient_values.json": json.dumps([list(row.values()) for row in rows]),
        "orient_list.json": json.dumps(by_column),
        "inside_an_object.json": json.dumps({"status": "ok", "data": rows}),
        "steps_are_objects.jsonl": "".join(json.dumps(row) + "\n" for row in steps),
    }


def drawn() -> dict[str, str]:
    """Tables that are drawn with signs."""
    psql = "    date    | value\n------------+------\n" + "".join(
        f" {d} | {v}\n" for d, v in zip(DAYS, VALUES, strict=False)
    )
    rows = "".join(f"| {d} | {v} |\n" for d, v in zip(DAYS, VALUES, strict=False))
    cells = "".join(f"<tr><td>{d}</td><td>{v}</td></tr>\n" for d, v in zip(DAYS, VALUES, strict=False))
    return {
        "drawn.txt": "| date | value |\n|---|---|\n" + rows,
        "psql.txt": psql + "(60 rows)\n",
        "frame.html": f'<table border="1">\n{cells}</table>\n',
    }


GROUPS = (dates, parts_of_dates, spreadsheets, json_tables, drawn)
