"""Owns the tables of a report: which figures a workload shows, under what names. W: one process; S: with servers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """How one workload is shown. Columns are (figure, heading); the first is the headline, compared with ours."""

    title: str
    size: str
    columns: tuple[tuple[str, str], ...]
    note: str = ""
    more_is_better: bool = False


TABLES = {
    "w1": Table(
        "W1: one agent, steps of 200 bytes one after the other",
        "steps",
        (
            ("p50_us", "step p50 µs"),
            ("floor_ratio", "× floor"),
            ("p99_us", "step p99 µs"),
            ("steps_per_s", "steps/s"),
            ("cpu_us", "CPU µs/step"),
        ),
        "Floor: one 200-byte row per commit. `@task*` is not durable when the next step starts.",
    ),
    "w2": Table(
        "W2: many agents at once",
        "steps in all",
        (
            ("steps_per_s", "steps/s"),
            ("floor_ratio", "× floor rate"),
            ("group_floor_ratio", "× grouped floor rate"),
            ("step_p50_ms", "step p50 ms"),
            ("step_p99_ms", "step p99 ms"),
            ("cpu_s", "CPU s"),
            ("rss_peak_mb", "peak RSS MB"),
        ),
        "Floor rate: one row per commit; grouped: 200 rows per commit.",
        more_is_better=True,
    ),
    "w3": Table(
        "W3: a conversation that grows by 10 KiB a turn, and its recovery",
        "turns",
        (
            ("turn_last_ms", "last turns ms"),
            ("floor_ratio", "× floor"),
            ("turn_growth", "last / first turns"),
            ("stored_ratio", "bytes / content"),
            ("recover_ms", "resume ms"),
            ("recover_step_ms", "start to new step ms"),
            ("load_ms", "load messages ms"),
        ),
        "Floor: one turn as three rows in one commit. *Resume* is what depends on T: from the wake-up until the agent's"
        " code goes on (DBOS: the replay). *Start to new step* counts from process start, import included.",
    ),
    "w4": Table(
        "W4: one large step output, hard to compress",
        "MiB",
        (
            ("step_ms", "step ms"),
            ("floor_ratio", "× floor"),
            ("read_ms", "read back ms"),
            ("rss_growth_mb", "memory beside the output MB"),
            ("read_rss_growth_mb", "read back, memory MB"),
            ("stored_ratio", "bytes / content"),
        ),
        "Floor: the value as 64 KiB rows in one commit. The peers' outputs are text.",
    ),
    "w5": Table(
        "W5: waiting agents and signals",
        "agents",
        (
            ("paced_p50_ms", "signal to resumed p50 ms"),
            ("floor_ratio", "× floor"),
            ("paced_p99_ms", "p99 ms"),
            ("burst_p50_ms", "back to back p50 ms"),
            ("evicted_p50_ms", "evicted p50 ms"),
            ("kb_per_agent", "KB/agent"),
            ("kb_per_evicted", "KB/evicted agent"),
            ("rss_mb", "RSS MB"),
            ("idle_cpu_percent", "CPU % waiting"),
        ),
        "Floor: one commit. LangGraph has no signal: the run ends and is invoked again in the same process.",
    ),
    "w6": Table(
        "W6: kill -9 in the middle, and a new process",
        "steps",
        (
            ("first_step_ms", "process start to first new step ms"),
            ("import_ms", "import ms"),
            ("lost", "finished steps run again"),
            ("repeated", "steps run twice"),
            ("missing", "steps never run"),
        ),
        "The step in flight at the kill may run twice anywhere. LangGraph goes on only when someone invokes it again.",
    ),
    "w7": Table(
        "W7: one run of an agent with a tool, 8 KiB a turn; its model reads the whole conversation each time",
        "turns",
        (
            ("stored_mb", "stored MB"),
            ("text_ratio", "× the text stored raw"),
            ("stored_ratio", "bytes / content"),
            ("turn_p50_ms", "turn p50 ms"),
            ("floor_ratio", "× floor"),
            ("turn_growth", "last / first turns"),
            ("rss_peak_mb", "peak RSS MB"),
        ),
        "Floor: the text alone, a turn's two rows in one commit. Everybody's model and tool say the same and cost next"
        ' to nothing. LangGraph: one invocation with `durability="sync"`.',
    ),
    "w8": Table(
        "W8: one parent starts many children and joins them",
        "children",
        (
            ("children_per_s", "children/s"),
            ("floor_ratio", "× floor rate"),
            ("group_floor_ratio", "× grouped floor rate"),
            ("us_per_child", "µs/child"),
            ("cpu_us", "CPU µs/child"),
            ("commits_per_child", "commits/child"),
            ("start_p50_ms", "start to first line p50 ms"),
            ("spawn_p50_ms", "spawn to first line p50 ms"),
            ("spawn_ratio", "spawn / start"),
            ("kb_per_child", "waiting parent KB/child"),
            ("rss_peak_mb", "peak RSS MB"),
        ),
        "From the parent's start to its result; a family of one is started over and over. Floor rate: one row per"
        " commit; grouped: 200 rows per commit. Commits: SQLite's own counter, the parent's and the worker's included."
        " The waiting parent's children are stored and not served; in DBOS the process holds them too.",
        more_is_better=True,
    ),
    "w9": Table(
        "W9: a tree of runs is cancelled, each with the stream of a model or a command open",
        "runs",
        (
            ("gone_p50_ms", "last one gone p50 ms"),
            ("gone_p99_ms", "p99 ms"),
            ("answered_p50_ms", "cancel returns p50 ms"),
            ("ended_p50_ms", "root's result p50 ms"),
            ("rss_peak_mb", "peak RSS MB"),
        ),
        "From the call that cancels the root to when another process sees the last stream closed and the last process"
        " of the last command ended. Commands run in the sandbox and have a process in the background.",
    ),
    "s1": Table(
        "S1: one agent, steps of 200 bytes one after the other",
        "steps",
        (
            ("p50_us", "step p50 µs"),
            ("over_floor_ms", "ms beyond the commit"),
            ("floor_ratio", "× floor"),
            ("p99_us", "step p99 µs"),
            ("steps_per_s", "steps/s"),
            ("cpu_us", "CPU µs/step"),
        ),
        "Floor: one 200-byte row per commit of the same database over loopback; for Restate of SQLite.",
    ),
    "s2": Table(
        "S2: many agents at once",
        "steps in all",
        (
            ("steps_per_s", "steps/s"),
            ("floor_ratio", "× floor rate"),
            ("group_floor_ratio", "× grouped floor rate"),
            ("step_p50_ms", "step p50 ms"),
            ("step_p99_ms", "step p99 ms"),
            ("cpu_s", "worker CPU s"),
            ("server_cpu_s", "server CPU s"),
            ("db_cpu_s", "PostgreSQL CPU s"),
            ("server_peak_mb", "server peak MB"),
        ),
        "Floor rate: one row per commit; grouped: from 32 connections at once (SQLite: 200 rows per commit).",
        more_is_better=True,
    ),
    "s4": Table(
        "S4: one large step output, and another worker reads it back",
        "MiB",
        (
            ("step_ms", "step ms"),
            ("read_ms", "read back ms"),
            ("rss_growth_mb", "worker memory beside the output MB"),
            ("server_peak_mb", "server peak MB"),
        ),
        "The first worker is killed, so the second waits for its lease; the time shown is of the read alone.",
    ),
    "s5": Table(
        "S5: waiting agents and signals",
        "agents",
        (
            ("paced_p50_ms", "signal to resumed p50 ms"),
            ("floor_ratio", "× floor"),
            ("paced_p99_ms", "p99 ms"),
            ("burst_p50_ms", "back to back p50 ms"),
            ("burst_per_s", "signals/s"),
            ("kb_per_agent", "worker KB/agent"),
            ("server_peak_mb", "server peak MB"),
            ("idle_cpu_percent", "worker CPU % waiting"),
        ),
        "Floor: one commit.",
    ),
    "s6": Table(
        "S6: dispatch, from start to the agent's first line",
        "starts",
        (("dispatch_p50_ms", "p50 ms"), ("dispatch_p99_ms", "p99 ms"), ("floor_ratio", "× floor")),
        "One run at a time. Storing the run and claiming it are two commits.",
    ),
    "s7": Table(
        "S7: one run's tokens to many readers (SSE)",
        "readers",
        (
            ("token_p50_ms", "token to reader p50 ms"),
            ("token_p99_ms", "p99 ms"),
            ("last_p50_ms", "token to the last reader p50 ms"),
            ("events_per_s", "events/s"),
            ("missing", "missing"),
            ("server_peak_mb", "server peak MB"),
            ("server_cpu_s", "server CPU s"),
        ),
        "The readers run on the same cores, in the process of the worker.",
    ),
    "s8": Table(
        "S8: servers on one PostgreSQL, a worker at each",
        "servers",
        (
            ("steps_per_s", "commits/s"),
            ("claims_per_s", "claims/s"),
            ("server_cpu_s", "servers' CPU s"),
            ("db_cpu_s", "PostgreSQL CPU s"),
            ("group_floor_per_s", "grouped floor/s"),
        ),
        "Servers, workers and PostgreSQL share the cores: what more machines would add does not show here.",
        more_is_better=True,
    ),
    "s9": Table(
        "S9: a server before any work",
        "workers",
        (
            ("server_start_mb", "server RSS MB"),
            ("server_idle_percent", "server CPU % with an idle worker"),
            ("idle_cpu_percent", "idle worker CPU %"),
        ),
        "Memory right after the start; CPU while one worker is connected and nothing happens.",
    ),
    "s10": Table(
        "S10: takeover, from kill -9 of a worker in a step to that step in another",
        "kills",
        (("takeover_p50_ms", "p50 ms"), ("takeover_p99_ms", "p99 ms")),
        "Through a server, which sees the connection break and waits whether it comes back. The heir is up and idle.",
    ),
    "s11": Table(
        "S11: one parent starts many children and joins them",
        "children",
        (
            ("children_per_s", "children/s"),
            ("floor_ratio", "× floor rate"),
            ("group_floor_ratio", "× grouped floor rate"),
            ("us_per_child", "µs/child"),
            ("cpu_us", "CPU µs/child"),
            ("commits_per_child", "commits/child"),
            ("start_p50_ms", "start to first line p50 ms"),
            ("spawn_p50_ms", "spawn to first line p50 ms"),
            ("spawn_ratio", "spawn / start"),
            ("kb_per_child", "waiting parent KB/child"),
            ("rss_peak_mb", "peak RSS MB"),
            ("server_cpu_s", "server CPU s"),
            ("db_cpu_s", "PostgreSQL CPU s"),
            ("server_peak_mb", "server peak MB"),
        ),
        "As W8. Grouped floor rate: from 32 connections at once (SQLite: 200 rows per commit). Commits: SQLite's own"
        " counter; on PostgreSQL transactions that write, by the next transaction id. In Restate the waiting parent's"
        " service holds the children too.",
        more_is_better=True,
    ),
    "s12": Table(
        "S12: a tree of runs is cancelled, each with the stream of a model or a command open",
        "runs",
        (
            ("gone_p50_ms", "last one gone p50 ms"),
            ("gone_p99_ms", "p99 ms"),
            ("answered_p50_ms", "cancel returns p50 ms"),
            ("ended_p50_ms", "root's result p50 ms"),
            ("rss_peak_mb", "peak RSS MB"),
        ),
        "As W9.",
    ),
}
