"""The reading that a person expects of every file in `files/`: one row per file."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reading:
    """How a file shall be read: the task, the columns of each role, how much there is; or the error, with its place.

    `error` has the pieces of the message: line, column and remedy.
    """

    task: str = ""
    id: str = ""
    time: str = ""
    target: str = ""
    inputs: str = ""
    observed: str = ""
    static: str = ""
    ignored: str = ""
    sequences: int = 0
    steps: str = ""
    first: float | None = None  # the first value of the target of a series
    error: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def series(time: str, target: str, steps: str, **more: Any) -> Reading:
    return Reading("forecast", time=time, target=target, steps=steps, **{"sequences": 1, **more})


def labels(inputs: str = "x", sequences: int = 12, steps: str = "4 to 5", **more: Any) -> Reading:
    return Reading(
        "classify", **{"id": "id", "target": "label", **more}, inputs=inputs, sequences=sequences, steps=steps
    )


def wide(inputs: str = "t0 … t5", **more: Any) -> Reading:
    return Reading("classify", **{"target": "label", "sequences": 20, "steps": "6", **more}, inputs=inputs)


def step_labels(id: str, time: str, target: str, inputs: str, **more: Any) -> Reading:
    """A label for every step."""
    about = {"sequences": 12, "steps": "4 to 5", **more}
    return Reading("classify_steps", id=id, time=time, target=target, inputs=inputs, **about)


def refused(*error: str, **options: Any) -> Reading:
    return Reading(error=error, options=options)


READINGS: dict[str, Reading] = {
    # dates as people write them
    "year_month.csv": series("Month", "Passengers", "48, monthly"),
    "slashes.csv": series("date", "temp_max", "60, daily"),
    "german_dates.csv": series("Datum", "Wert", "48, monthly"),
    "month_names.csv": series("date", "value", "48, monthly"),
    "month_day_names.csv": series("date", "value", "60, daily"),
    "quarters.csv": series("date", "value", "40, quarterly"),
    "quarters_joined.csv": series("date", "value", "40, quarterly"),
    "year_quarter_columns.csv": series("year, quarter", "realgdp", "40, quarterly"),
    "year_month_columns.csv": series("year, month", "rain", "48, monthly"),
    "compact_weekly.csv": series("date", "co2", "60, weekly"),
    "weekly.csv": series("ds", "y", "60, weekly"),
    "month_ends.csv": series("date", "value", "48, monthly"),
    "business_days.csv": series("date", "value", "60, business days"),
    "hourly.csv": series("timestamp", "load", "72, hourly"),
    "time_zones.csv": series("time", "load", "72, hourly"),
    "date_and_clock.csv": series("date, time", "load", "72, hourly"),
    "years.csv": series("YEAR", "SUNACTIVITY", "60, yearly"),
    "day_first.csv": series("date", "value", "60, daily"),
    "month_first.csv": series("date", "value", "60, daily"),
    "ambiguous.csv": refused("line 3", "'date'", "2 January 1949 or 1 February 1949", 'dates="month-first"'),
    "ambiguous_day_first.csv": series("date", "value", "48, monthly", options={"dates": "day-first"}),
    "pandas_dates.csv": series("Unnamed: 0", "value", "60, daily"),
    "no_header.csv": series("f0", "f1", "60, daily"),
    "only_values.csv": series("", "value", "60, one per row"),
    "numbers.txt": series("", "f0", "60, one per row"),
    "columns.txt": series("year", "f1", "60, yearly"),
    "table.txt": series("date", "value", "60, daily"),
    "spaces.csv": series("year", "sun", "60, yearly", first=10.0),
    "tabs.dat": series("date", "value", "60, daily"),
    "preface.asc": series("year", "f1", "60, yearly"),
    "names_and_spaces.dat": series("year", "f2", "60, yearly", ignored="f0"),
    "names_and_blanks.txt": series("year", "sun", "60, yearly", ignored="station", first=10.0),
    "r_table.txt": refused("line 16", "'sun'", "nothing", "missing="),
    # rows that are missing, double, out of order or wrong
    "gap.csv": refused("line 22", "'date'", "a step of 3 days among steps of 1 day", 'fill="forward"'),
    "gap_filled.csv": series("date", "value", "60, daily", options={"fill": "interpolate"}),
    "duplicate.csv": refused("line 32", "'date'", "2012-01-30 twice"),
    "unsorted.csv": refused("line 13", "'date'", "2012-01-11 after 2012-01-12", "sort=True"),
    "unsorted_sorted.csv": series("date", "value", "60, daily", options={"sort": True}),
    "stray_text.csv": refused("line 41", "'value'", "'n.a.?'", "a number"),
    "missing_value.csv": refused("line 16", "'value'", "got nothing", 'fill="forward"'),
    "blank_value.csv": refused("line 16", "'value'", "got nothing", 'fill="forward"'),
    "missing_value_filled.csv": series("date", "value", "60, daily", options={"fill": "forward"}),
    "bad_date.csv": refused("line 7", "'date'", "'sometime'", "a date written like '2012-01-01'"),
    # several series
    "shops.csv": series("date", "sold", "60, daily", id="shop", sequences=2),
    "shops_price.csv": series(
        "date",
        "sold",
        "60, daily",
        id="shop",
        sequences=2,
        inputs="price",
        options={"target": "sold", "inputs": "price"},
    ),
    "shops_weather.csv": series(
        "date", "sold", "60, daily", id="shop", sequences=2, inputs="weather", options={"inputs": "weather"}
    ),
    "two_targets.csv": series(
        "date", "sold, returned", "60, daily", id="shop", sequences=2, options={"target": "sold,returned"}
    ),
    "shops_visitors.csv": series(
        "date",
        "sold",
        "60, daily",
        id="shop",
        sequences=2,
        observed="visitors",
        static="kind",
        options={"target": "sold", "observed": "visitors", "static": "kind"},
    ),
    "long_format.csv": series("ds", "y", "60, daily", id="unique_id", sequences=2),
    "monash.tsf": series("ds", "y", "48, monthly", id="unique_id", sequences=2),
    # sequences with a label or a number each
    "sensors.csv": labels("x, y", time="t"),
    "sensors_pandas.csv": labels(ignored="Unnamed: 0"),
    "noise_sorted_by_label.csv": labels(sequences=10, steps="4", ignored="Unnamed: 0"),
    "float_labels.csv": labels(sequences=24),
    "integer_target.csv": labels(sequences=24, target="target"),
    "amounts.csv": Reading("regress", id="id", target="amount", inputs="x", sequences=12, steps="4"),
    "text_input.csv": labels("colour, x"),
    "free_text.csv": labels(ignored="note"),
    "leading_zeros.csv": labels(),
    "label_per_row.csv": step_labels("id", "", "label", "x"),
    "steps_of_persons.csv": step_labels(
        "person", "second", "activity", "speed, device", options={"target": "activity"}
    ),
    "labels_over_time.csv": step_labels("", "date", "label", "x", sequences=1, steps="54"),
    "label_without_id.csv": refused("'label'", "changes from row to row", "id=", 'task="classify_steps"'),
    "persons.csv": labels("speed", id="person", time="second", target="activity"),
    "interleaved.csv": refused("line 14", "'id'", "not contiguous", "sort=True"),
    "one_in_a_thousand.csv": refused("line 778", "'x'", "'oops' in sequence 's194'", "a number"),
    "constant_id_column.csv": labels(static="age"),
    # one row per sequence
    "wide.csv": wide(),
    "wide_id.csv": wide(id="id"),
    "wide_static.csv": wide(id="id", static="age, sex"),
    "wide_two_channels.csv": wide("x_0 … y_3", steps="4"),
    "wide_pandas.csv": wide("0 … 5", ignored="Unnamed: 0"),
    "wide_gap.csv": refused("line 9", "'t2'", "got nothing", 'missing="drop"'),
    "wide_no_target.csv": refused("several possible targets", "target="),
    "headless_wide.csv": wide("f0 … f5", target="f6"),
    "archive.arff": wide("att0 … att5", target="target"),
    "archive_multi.arff": wide("rel", target="class"),
    "archive.ts": wide("", target=""),
    # as archives and programs write them
    "headless_class_first.tsv": wide("f1 … f6", target="f0"),
    "headless_counted.csv": series("", "f1", "60, one per row", ignored="f0"),
    "unnamed_series.csv": series("Unnamed: 0", "0", "60, steps of 1"),
    "shuffled_index.csv": labels(sequences=10, steps="4", ignored="Unnamed: 0"),
    "wide_numbers.csv": Reading("regress", target="target", inputs="t0 … t5", sequences=20, steps="6"),
    "codes.arff": wide("att0 … att5", target="target"),
    "clock.ts": wide("", target=""),
    "numbers_as_text.json": series("year", "wheat", "60, every 5 years"),
    "names_of_rows.csv": refused("several possible targets (violent, murder, poverty)", "target="),
    "anomalies.csv": step_labels("", "timestamp", "is_anomaly", "value", sequences=1, steps="60"),
    "label_at_the_end.csv": refused("'label'", "one class only, 0", "the last 20% of the steps", "test="),
    # ways of writing a file
    "european.csv": series(
        "Datum", "Umsatz", "60, daily", first=1000.5, ignored="Temperatur", options={"target": "Umsatz"}
    ),
    "thousands.csv": series("date", "sales", "60, daily", first=1000.0),
    "records.json": labels(),
    "lines.jsonl": labels(),
    "sheet.xlsx": labels(),
    "latin1.csv": refused("line 6", "0xe9", 'encoding="latin-1"'),
    "latin1_told.csv": labels(options={"encoding": "latin-1"}),
    "utf16.csv": refused("line 1", 'encoding="utf-16"'),
    "utf16_told.csv": labels(options={"encoding": "utf-16"}),
    "pipes.data": labels(),
    "comments.csv": labels(),
    "compressed.csv.gz": labels(),
    "prose.txt": Reading("language"),
    # what is no data
    "page.txt": refused("markup"),
    "document.txt": refused("a PDF"),
    "pickle.txt": refused("a pickle", "CSV or Parquet"),
    "old_excel.xls": refused(".xls", ".xlsx or .csv"),
    # dates of spreadsheets and R; several columns that are one date
    "month_and_short_year.csv": series("month", "value", "48, monthly"),
    "day_month_short_year.csv": series("date", "value", "60, daily"),
    "short_years.csv": series("date", "value", "60, daily"),
    "short_slashes.csv": series("date", "value", "60, daily"),
    "short_ambiguous.csv": refused("line 3", "'date'", "2 January 1996 or 1 February 1996", 'dates="month-first"'),
    "german_months.csv": series("Monat", "Wert", "48, monthly"),
    "unix_seconds.csv": series("timestamp", "load", "72, hourly"),
    "unix_milliseconds.csv": series("timestamp", "load", "72, hourly"),
    "years_with_decimals.csv": series("time", "value", "60, monthly", ignored="Unnamed: 0"),
    "clock_with_jitter.csv": series("time", "value", "60, steps of 0.0202"),
    "year_and_month_name.csv": series("Year, Month", "Sales", "48, monthly"),
    "year_and_quarter_text.csv": series("year, quarter", "gdp", "40, quarterly"),
    "yr_mo_day.csv": series("yr, mo, day", "value", "60, daily"),
    "day_of_year.csv": series("year, doy", "value", "60, daily"),
    "year_to_hour.csv": series("year, month, day, hour", "pm2.5", "96, hourly", ignored="No"),
    "date_and_hour.csv": series("dteday, hr", "cnt", "96, hourly"),
    # as spreadsheets and old programs write them
    "euros.csv": series("Datum", "Umsatz", "60, daily", first=10.0),
    "dollars.csv": series("date", "price", "60, daily", first=1000.0),
    "percent.csv": series("date", "share", "60, daily", first=10.0),
    "thousands_or_decimals.csv": refused(
        "line 2", "'Umsatz'", "1.000, which is 1000 with decimal commas or 1 with decimal points", 'decimal="comma"'
    ),
    "thousands_told.csv": series("Datum", "Umsatz", "60, daily", first=1000.0, options={"decimal": "comma"}),
    "separator_line.csv": series("Datum", "Wert", "60, daily", first=10.0),
    "title_lines.csv": series("date", "value", "60, daily", first=10.0),
    "old_line_ends.csv": series("date", "value", "60, daily", first=10.0),
    "footer.csv": refused("line 62", "1 field", "2 fields (date, value)"),
    "cp1252.csv": refused("line 2", "0x80", 'encoding="cp1252"'),
    "utf16_without_mark.csv": refused("UTF-16", 'encoding="utf-16-le"'),
    "infinite.csv": refused("line 11", "'value'", "inf", "a finite number"),
    "named_index.csv": series("Month", "0", "60, daily", first=10.0),
    "blanks_around_labels.csv": labels(steps="4"),
    "names_of_sequences.csv": labels(steps="4", ignored="person"),
    "title.xlsx": labels(),
    "two_sheets.xlsx": refused("2 sheets with tables (Sheet, data)", "sheet="),
    "two_sheets_told.xlsx": labels(options={"sheet": "data"}),
    # JSON of pandas
    "orient_columns.json": labels(steps="4"),
    "orient_index.json": labels(steps="4"),
    "orient_split.json": labels(steps="4"),
    "orient_values.json": labels(inputs="f1", steps="4", id="f0", target="f2"),
    "orient_list.json": labels(steps="4"),
    "inside_an_object.json": labels(steps="4"),
    "steps_are_objects.jsonl": refused("'steps'", "objects (x, y)", "a list for each of x, y"),
    # drawn tables
    "drawn.txt": refused("drawn with | and -", "CSV"),
    "psql.txt": refused("drawn with | and -", "CSV"),
    "frame.html": refused("markup"),
}
