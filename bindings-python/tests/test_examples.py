"""The agents of the examples survive what they promise to: re-entry at every wait and a crash at every commit."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from flovyn.testing import check

EXAMPLES = Path(__file__).parents[2] / "examples"
PROVED = {"hello", "tools", "approval", "streaming", "branching", "crash", "worker"}
#: What only starts workers and looks on; the agent of the toolkit and families are killed in tests of their own.
LOOKS_ON = {"three_languages", "coding_agent", "research_team", "laptop_hands", "other_agents"}

Load = Callable[[str], ModuleType]


@pytest.fixture
def load() -> Iterator[Load]:
    """Import the program of an example as a module of its own, for one test."""
    loaded: list[str] = []

    def load(name: str) -> ModuleType:
        (path,) = EXAMPLES.glob(f"[0-9]*/python/{name}.py")
        spec = importlib.util.spec_from_file_location(f"example_{name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        loaded.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


def test_every_example_is_proved() -> None:
    assert {path.stem for path in EXAMPLES.glob("[0-9]*/python/*.py")} == PROVED | LOOKS_ON


def test_hello(load: Load) -> None:
    report = check(load("hello").hello, "world")
    assert report.result == "Hello, world!"
    assert [content for _, _, content in report.entries] == ["world", "Hello, world!"]


def test_tools_with_retries(load: Load) -> None:
    report = check(load("tools").worker)
    assert report.result["squares"] == [0, 1, 4]
    timeout, hopeless = report.result["errors"]
    assert timeout.startswith("slow: ") and hopeless == "hopeless: ValueError after 1 attempt(s)"


@pytest.mark.parametrize(("answer", "result"), [("yes", "sent: Dear all, it is green."), ("no", "not sent")])
def test_human_approval(load: Load, answer: str, result: str) -> None:
    assert check(load("approval").mailer, "it is green", signals={"approval": answer}).result == result


def test_streaming(load: Load) -> None:
    speech = load("streaming")
    report = check(speech.speaker)
    assert report.result == " ".join(speech.WORDS)
    assert report.entries == [("assistant", "message", report.result)]


def test_branching_conversation(load: Load) -> None:
    said = check(load("branching").chat, 2, signals=[("userMessage", "trees"), ("userMessage", "oaks")]).result
    assert said == ["trees", "About trees: it depends.", "oaks", "About oaks: it depends."]


def test_crash_and_resume(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = load("crash")
    monkeypatch.setattr(crash, "STEPS", 6)  # As many crashes as steps, three ways each: more would prove no more.
    log = tmp_path / "count.log"
    report = check(crash.counter, str(log))
    assert report.result == sum(range(6)) and report.commits >= 6
    # A step that was in flight when its process died runs once more; one crash, one step at most.
    assert len(log.read_text().splitlines()) <= report.runs * (6 + 1)


def test_three_languages(load: Load) -> None:
    assert check(load("worker").relay, 2).result == [[0, "Python"], [1, "Python"]]
