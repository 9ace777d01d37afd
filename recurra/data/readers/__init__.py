"""Readers: from files to sequence sets.

`dispatch` detects the format of a file. In processing order: `open_files` (bytes, gzip, text, lines); one module per
format: `csv`, `jsonl`, `arrow`, `numpy`, `ts`, `conll`, `text`, `wav` (with `log_mel`), `idx`, `mat`, `dat`, `hdf5`;
and for tables: `layout` (roles of columns), `table_sources` (rows by range), `sort_and_fill` (order and gaps),
`table_scan` (finds the sequences and the first error, with `frequency` for timestamps), `tables` and `nested`.

Nothing is imported here: the packages of a format are needed only to read such a file.
"""
