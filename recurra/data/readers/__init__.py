"""Readers: from files to sequence sets.

`dispatch` detects the format of a file. One module per format: `csv`, `jsonl`, `json_records`, `arrow`, `arff`, `tsf`,
`excel` and `dat` open tables; `numpy`, `ts`, `conll`, `text`, `wav` (with `log_mel`), `idx`, `mat` and `hdf5` read
sequences. A table then passes `column_conversion` (dates and numbers in text), `roles` (what each column is, and why),
`sort_and_fill` (order and gaps), `table_scan` (finds the sequences and the first error, with `frequency` for
timestamps), and `tables`, `wide` or `nested`.

Nothing is imported here: the packages of a format are needed only to read such a file.
"""
