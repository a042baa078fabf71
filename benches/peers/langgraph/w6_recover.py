"""W6 on LangGraph: the program that `harness.crash` kills and starts again; the second life calls `invoke(None)`.

Usage: python -m harness.crash KILL_AT python w6_recover.py STEPS sync|async      (async is LangGraph's default)
"""

from __future__ import annotations

import time

began = time.time()
from langgraph.graph import StateGraph  # noqa: F401  (what a program of LangGraph imports)

imported = time.time()
import sys

from engine import Loop, looping, saver, thread
from harness.content import STEP_RESULT
from harness.progress import life, note

note("begun", at=began)
note("imported", at=imported)


def logged(state: Loop) -> dict[str, object]:
    note("step", state["number"])
    return {"number": state["number"] + 1, "last": STEP_RESULT}


def main(steps: int, durability: str) -> None:
    graph = looping(logged, saver())
    note("connected")
    begin = {"number": 0, "steps": steps} if life() == 1 else None
    graph.invoke(begin, thread("crash"), durability=durability)
    note("finished")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
