"""The programs of docs/agents.md and docs/python.md that are in Python, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from flovyn.testing import FakeLlm, fake_llm, tool_call, turn

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
#: What each of them prints.
PRINTED = ["They eat fish.", "Otters hold hands.", "True It sells otters.", ""]
CASES = list(zip(PROGRAMS, PRINTED, strict=True))


@pytest.mark.parametrize(("program", "printed"), CASES, ids=("agent", "steps", "output", "test"))
def test_a_program_of_the_page_runs(program: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Otters sleep hand in hand.\n")
    (tmp_path / "program.py").write_text(program)
    turns = [
        tool_call("search", {"query": "otters"}).when(last_user_contains="eat", has_tool_result=False),
        turn("They eat fish.").when(last_user_contains="eat"),
        turn("Otters hold hands.").when(last_user_contains="hand in hand"),
        turn('{"is_spam": true, "reason": "It sells otters."}').when(last_user_contains="Buy otters"),
    ]
    with fake_llm(turns) as fake:
        environment = os.environ | {"ANTHROPIC_BASE_URL": fake.url, "FLOVYN_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_the_page_of_python_runs_from_its_top_to_its_end(tmp_path: Path) -> None:
    page = (PAGE.parent / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    # As a console does, which takes `await` outside of functions.
    run = (
        "import ast, asyncio; text = open('page.py').read(); names = {'__name__': '__main__'}\n"
        "code = compile(text, 'page.py', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)\n"
        "async def main(): await eval(code, names)\n"
        "asyncio.run(main())\n"
        "import flovyn; print(flovyn.run(names['shop'], url='memory:'))\n"
    )
    command = [sys.executable, "-c", run]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "COMPLETED\n" in done.stdout and "charged 6 under " in done.stdout, done.stdout


def test_every_block_of_the_page_of_rust_is_compiled_elsewhere() -> None:
    page = (PAGE.parent / "rust.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (PAGE.parents[1] / "examples").rglob("*.rs")]
    compiled = ["\n".join(line.strip() for line in source.splitlines()) for source in sources]
    blocks = re.findall(r"^```rust\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        text = "\n".join(line.strip() for line in block.splitlines())
        assert any(text in source for source in compiled), f"no example has this block of docs/rust.md:\n{block}"


def test_the_programs_of_the_page_of_children_run(tmp_path: Path) -> None:
    page = (PAGE.parent / "children.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(programs))
    said = ["['otters hold hands', 'seals hold hands']\n"] * 3 + ["otters, 3 deep\n"]
    said += ["['otters hold hands', 'seals hold hands', 'rays hold hands']\n"]
    said += ["[['Write about otters.', 'too long'], ['Write about otters.', 'too long']]\n"]
    said += ["invoices: My invoice is wrong.\n", "['otters in short', 'seals in short']\n", ""]
    assert len(said) == len(programs)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, "".join(said)), done.stderr


def of_patterns() -> FakeLlm:
    """What the models of the page of patterns say."""
    plan = {"tasks": [{"id": "deep", "worker": "depth", "arguments": {"lake": "Ness"}, "dependsOn": []}]}
    return fake_llm(
        [
            tool_call("scout", {"task": "Look at Nessie."})
            .and_call("measure", {"lake": "Ness"})
            .when(last_user_contains="What lives in", has_tool_result=False),
            turn("Nessie lives there, at 230 m.").when(last_user_contains="What lives in"),
            turn("Nessie is one.").when(last_user_contains="Look at Nessie"),
            tool_call("transfer_to_billing", {"reason": "an invoice"}).when(
                last_user_contains="My invoice", has_tool_result=False
            ),
            turn("It is corrected.").when(last_user_contains="My invoice"),
            tool_call("depth", {"lake": "Como"}).when(last_user_contains="Compare two", has_tool_result=False),
            turn("Como is deeper.").when(last_user_contains="Compare two"),
            tool_call("final_answer", plan).when(last_user_contains="Split this task"),
            tool_call("final_answer", {"answer": "Eels, at 230 m.", "satisfied": True}).when(
                last_user_contains="Other agents have done"
            ),
            tool_call("careful", {"what": "logs"}, id="delete").when(last_user_contains="Delete the logs", turn=1),
            tool_call("answer_agent", {"id": "1.delete", "answer": "yes"}).when(
                last_user_contains="Delete the logs", turn=2
            ),
            turn("They are gone.").when(last_user_contains="Delete the logs"),
        ]
    )


def test_the_programs_of_the_page_of_patterns_run(tmp_path: Path) -> None:
    page = (PAGE.parent / "patterns.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(programs))
    with of_patterns() as fake:
        environment = os.environ | {"ANTHROPIC_BASE_URL": fake.url, "FLOVYN_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "page.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    said = (
        "Nessie lives there, at 230 m.\nIt is corrected.\nComo is deeper.\nEels, at 230 m. ['deep']\nThey are gone.\n"
    )
    assert (done.returncode, done.stdout) == (0, said), done.stderr
