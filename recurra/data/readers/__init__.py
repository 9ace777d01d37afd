"""From files to sequence sets.

`dispatch` decides which reader a file needs. In the order data flows: `opening` (bytes, gzip, text, lines); the
formats `csv`, `jsonl`, `arrow`, `numpy`, `ts`, `conll`, `text`, `wav` (with `mel`), `idx`, `mat`, `dat`, `hdf5`; and,
for those that are tables, `layout` (which column plays which part), `sources` (rows by range), `rewrite` (order and
gaps), `survey` (one pass that finds the sequences and the first fault, with `cadence` for time), `tables` and `nested`.

Nothing is imported here: a format's packages are needed only where such a file is read.
"""
