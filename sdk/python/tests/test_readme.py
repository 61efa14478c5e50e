"""The examples of README.md are programs that run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, timeout=300)


def test_the_first_example() -> None:
    done = _run(EXAMPLES[0])
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("example", EXAMPLES[1:], ids=range(2, len(EXAMPLES) + 1))
def test_the_other_examples(example: str) -> None:
    done = _run("import plimsoll\n" + example)
    assert (done.returncode, done.stderr) == (0, "")
