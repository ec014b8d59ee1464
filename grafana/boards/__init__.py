"""Grafana's dashboards, from the tables that the metrics and alert rules come from.

`python -m boards` writes them; `boards.files.files()` tells what it would write.
"""
