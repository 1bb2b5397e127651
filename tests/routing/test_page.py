"""The example of docs/routing.md runs as it stands."""

import re
from pathlib import Path

from tests.routing.models import routed, rows

PAGE = Path(__file__).parent.parent.parent / "docs" / "routing.md"


def test_the_example(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {"model": routed("delta"), "batches": [rows()], "ids": rows()}
    exec(compile(code, PAGE.name, "exec"), names)
    assert "layer 0 mlp" in capsys.readouterr().out
    assert names["logits"].shape == (4, 24, 97)
    assert (tmp_path / "heatmap.png").is_file()
