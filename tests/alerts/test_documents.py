"""The queries that the documentation has: PromQL, of metrics that exist."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from alerts.promql import names
from alerts.shipped import KINDS, ROOT
from requires import needs


@needs("prometheus")
@pytest.mark.parametrize(("document", "heading", "count"), [("joins.md", "# ", 4), ("engines.md", "## Queries", 10)])
def test_the_queries_of_the_documentation_are_promql(document: str, heading: str, count: int, tmp_path: Path) -> None:
    text = (ROOT / "docs" / document).read_text()
    queries = re.findall(r"(?:^    .*\n)+", text[text.index(heading) :], re.MULTILINE)
    assert len(queries) == count
    rules = [{"record": f"oomcast:query:{i}", "expr": query} for i, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", file], check=True, capture_output=True, timeout=60)
    for query in queries:
        assert {name.removesuffix("_bucket") for name in names(query)} <= {*KINDS, "kube_pod_info"}
