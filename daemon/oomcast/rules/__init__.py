"""Alert and recording rules, generated from one table of thresholds: what `oomcast rules` prints.

`thresholds` is the table, `config` what a user may choose, one module per theme holds the rules, `render` writes
them. The daemon itself needs nothing of this.
"""
