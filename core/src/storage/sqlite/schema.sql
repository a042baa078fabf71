-- Generated from the migrations; `FLOVYN_BLESS=1 cargo test` writes it.

CREATE TRIGGER payload_gone AFTER DELETE ON payload BEGIN
    DELETE FROM payload_piece WHERE key BETWEEN old.id << 20 AND old.id << 20 | 1048575;
END;

CREATE TABLE agent_checkpoint (
    key INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (key >> 31) VIRTUAL,
    sequence INTEGER GENERATED ALWAYS AS (key & 2147483647) VIRTUAL,
    start INTEGER NOT NULL,             -- the place of its segment's op 0
    leaves TEXT NOT NULL,
    metadata TEXT NOT NULL,
    usage TEXT NOT NULL,
    hash BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    state ANY NOT NULL
) STRICT;

CREATE TABLE agent_definition (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    slug TEXT NOT NULL,
    spec TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_entry (
    place INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (place >> 31) VIRTUAL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    id BLOB NOT NULL,
    parent_id BLOB,
    depth INTEGER NOT NULL,
    thread TEXT NOT NULL,
    role TEXT NOT NULL,
    entry_type TEXT NOT NULL,
    turn_id TEXT,
    metadata TEXT,
    label_name TEXT,                    -- where it is not the role
    label_key ANY NOT NULL,
    seen BLOB,
    once_name TEXT,
    once_n INTEGER,
    created_at INTEGER NOT NULL,
    output_of INTEGER,                  -- the place of the run's task whose output is the content, which is stored there
    content ANY,
    CHECK ((output_of IS NULL) = (content IS NOT NULL))
) STRICT;

CREATE TABLE agent_execution (
    run INTEGER PRIMARY KEY,
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    status INTEGER NOT NULL,            -- the place in Status::ALL
    ready INTEGER NOT NULL,             -- may be claimed now
    epoch INTEGER NOT NULL DEFAULT 0,
    worker BLOB,                        -- who holds it
    last_worker BLOB,                   -- whose commit suspended, paused or ended it in this epoch
    lease_expires INTEGER,
    lease_ttl INTEGER NOT NULL DEFAULT 0,
    segment INTEGER NOT NULL DEFAULT 0,
    start INTEGER NOT NULL DEFAULT 0,   -- the place of the segment's op 0
    claim_number INTEGER NOT NULL DEFAULT 0, -- the event of the last claim
    base INTEGER NOT NULL DEFAULT 0,    -- commits, next free sequence and highest fact as of the last claim;
    top INTEGER NOT NULL DEFAULT 0,     -- later ones are on the events since
    fact_high INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    quarantined INTEGER NOT NULL DEFAULT 0, -- may have a quarantined task
    step_count INTEGER NOT NULL DEFAULT 0,
    step_limit INTEGER,
    tail_limit INTEGER NOT NULL,
    leaf BLOB,
    code TEXT,
    cancel_number INTEGER,
    cancel_mode INTEGER,
    cancel_grace INTEGER,
    cancel_until INTEGER,
    begins_at INTEGER,                  -- a delayed start
    ends_at INTEGER,                    -- created_at plus the timeout
    due_at INTEGER,                     -- when housekeeping must look at it
    wait TEXT,
    host_timer INTEGER GENERATED ALWAYS AS     -- it waits by a timer of its last holder's process
        (CASE WHEN status = 2 THEN json_extract(wait, '$.host_timer') END) VIRTUAL,
    no_worker INTEGER,                  -- the epoch whose wait for a worker it was told of
    prefer_until INTEGER,               -- until when only its last worker, which has it parked, may claim it
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    key TEXT,
    input_digest BLOB NOT NULL,
    limits TEXT NOT NULL,
    budget TEXT,
    metadata TEXT,
    concurrency_key TEXT,
    concurrency_limit INTEGER,          -- how many runs of the key may be RUNNING; one where it is NULL
    traceparent TEXT,
    usage TEXT,
    parent_id BLOB,
    root_id BLOB NOT NULL,
    forked_run INTEGER,
    forked_id BLOB,
    forked_segment INTEGER,
    forked_sequence INTEGER,
    forked_high INTEGER,                -- the parent's last event and commit when the fork was made
    forked_base INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ended_at INTEGER,
    failure TEXT,
    input ANY NOT NULL,
    output ANY
, children INTEGER NOT NULL DEFAULT 0, depth INTEGER NOT NULL DEFAULT 0, purse TEXT, detached INTEGER NOT NULL DEFAULT 0, shared_context TEXT, handed_to BLOB, starts_by INTEGER, persistence INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE agent_op (
    place INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (place >> 31) VIRTUAL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    label_name TEXT NOT NULL,
    label_key ANY NOT NULL,             -- text: the author's key; blob: a digest
    seen BLOB,
    once_name TEXT,
    once_n INTEGER,
    due_at INTEGER,                     -- an armed timer
    fired INTEGER,                      -- its fact number
    fired_at INTEGER,
    count INTEGER,                      -- a read's repetitions; an abandoned op's sequence
    data TEXT,                          -- what a call cost
    task_id BLOB,                       -- an attached task; a once's digest
    value ANY                           -- a read's answer, a once's result
) STRICT;

CREATE TABLE agent_signal (
    key INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    delivery INTEGER NOT NULL,
    idempotency_key TEXT,
    consumed_segment INTEGER,
    consumed_sequence INTEGER,
    consumed_commit INTEGER,
    created_at INTEGER NOT NULL,
    payload ANY NOT NULL
) STRICT;

CREATE TABLE api_key (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    scopes TEXT NOT NULL,               -- of which a role is a set
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    org_id BLOB NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT,
    seal BLOB                           -- of the row and those before it in its org
) STRICT;

CREATE TABLE commit_request (
    key INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (key >> 31) VIRTUAL,
    high INTEGER NOT NULL,
    at INTEGER NOT NULL,
    request_id BLOB NOT NULL,
    digest BLOB NOT NULL,
    top INTEGER NOT NULL,
    known INTEGER NOT NULL,
    fact_high INTEGER NOT NULL,
    outcome INTEGER NOT NULL
) STRICT;

CREATE TABLE enrolled_worker (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    serves TEXT NOT NULL,               -- {agents, tasks}: kinds
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    key INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (key >> 31) VIRTUAL,
    number INTEGER GENERATED ALWAYS AS (key & 2147483647) VIRTUAL,
    at INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER,
    data TEXT,
    -- The commit after which this was the last event: enough to give its answer again.
    commit_number INTEGER,
    committed_at INTEGER,
    request_id BLOB,
    digest BLOB,
    top INTEGER,                        -- the next free sequence of the segment
    known INTEGER,
    fact_high INTEGER,
    outcome INTEGER                     -- 0 continue, 1 suspended, 2 + status finished; 16 times the pause's reason
) STRICT;

CREATE TABLE ledger (
    run INTEGER NOT NULL,
    task_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    reserved TEXT NOT NULL,
    settled TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (run, task_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE local_run (
    number INTEGER PRIMARY KEY CHECK (number < 0),
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    ended_at INTEGER,                   -- when it ended, as far as this file knows
    UNIQUE (org_id, id)
) STRICT;

CREATE TABLE local_value (
    run INTEGER NOT NULL REFERENCES local_run (number) ON DELETE CASCADE,
    hash BLOB NOT NULL,                 -- of the bytes of the value
    value ANY NOT NULL,
    PRIMARY KEY (run, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE machine (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,                -- whose it is, as who approved it says
    key_id BLOB NOT NULL,               -- with which it works
    offers TEXT NOT NULL,               -- JSON
    created_at INTEGER NOT NULL,
    seen_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE machine_pairing (
    secret BLOB NOT NULL PRIMARY KEY,   -- hash of what the machine has
    code TEXT NOT NULL UNIQUE,          -- for who approves it
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    org_id BLOB,
    owner TEXT,
    actor TEXT,                         -- who has approved it
    not_after INTEGER                   -- when the key ends at the latest
) STRICT;

CREATE TABLE organization (
    org_id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    limits TEXT                         -- what its callers may ask for together, as JSON; nothing where it is NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE payload (
    id INTEGER PRIMARY KEY,
    org_id BLOB NOT NULL,
    hash BLOB NOT NULL,
    size INTEGER NOT NULL,
    complete INTEGER NOT NULL,
    touched_at INTEGER NOT NULL
) STRICT;

CREATE TABLE payload_piece (
    key INTEGER PRIMARY KEY,
    zstd INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE payload_reference (
    payload INTEGER NOT NULL REFERENCES payload (id),
    run INTEGER NOT NULL,
    PRIMARY KEY (payload, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE preview (
    org_id BLOB NOT NULL,
    execution BLOB NOT NULL,
    segment INTEGER NOT NULL,           -- of the task; 0 for what the agent itself made
    sequence INTEGER NOT NULL,          -- -1 for what the agent itself made
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER NOT NULL,               -- of the last preview in the row
    data TEXT NOT NULL,
    PRIMARY KEY (org_id, execution, segment, sequence, epoch, attempt, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_limit (
    org_id BLOB NOT NULL,
    queue TEXT NOT NULL,
    spec TEXT NOT NULL,
    paid_until INTEGER NOT NULL DEFAULT 0,
    opens_at INTEGER,
    PRIMARY KEY (org_id, queue)
) STRICT, WITHOUT ROWID;

CREATE TABLE resume_request (
    run INTEGER NOT NULL,
    request_id BLOB NOT NULL,
    PRIMARY KEY (run, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule (
    org_id BLOB NOT NULL,
    id TEXT NOT NULL,
    spec TEXT NOT NULL,
    next_at INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE signal_return (
    key INTEGER NOT NULL,               -- of the signal
    returned_commit INTEGER NOT NULL,
    segment INTEGER NOT NULL,           -- of the op
    sequence INTEGER NOT NULL,
    consumed_commit INTEGER NOT NULL,
    PRIMARY KEY (key, returned_commit)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_execution (
    place INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (place >> 31) VIRTUAL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    id BLOB NOT NULL,
    status INTEGER NOT NULL,            -- the place in TASK_STATUS
    placement INTEGER NOT NULL,         -- 0 inline, 1 queue, 2 queue after an inline attempt
    attempt INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    reconcile INTEGER,                  -- the next claim asks the author's `reconcile`
    epoch INTEGER,                      -- the claim of the run under which an inline attempt started
    ended_number INTEGER,               -- its fact number
    detached INTEGER,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    org_id BLOB,                        -- of tasks on a queue: what the dispatch index starts with
    entry_id BLOB,
    visible_at INTEGER NOT NULL,
    worker BLOB,
    lease_expires INTEGER,
    sign_at INTEGER,                    -- the last sign of a claimed attempt
    no_worker INTEGER,                  -- since when it was visible as its run was told that nobody serves it
    stop INTEGER,                       -- its run was asked to stop while it was open
    due_at INTEGER,                     -- when housekeeping must look at it
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    label_name TEXT,                    -- where it is not the kind
    label_key ANY NOT NULL,
    seen BLOB,
    once_name TEXT,
    once_n INTEGER,
    options TEXT,                       -- where they are not the defaults
    progress TEXT,
    failure TEXT,
    input ANY NOT NULL,
    output ANY
) STRICT;

CREATE TABLE watch (
    org_id BLOB NOT NULL,
    execution BLOB NOT NULL,
    reader BLOB NOT NULL,               -- a process
    served INTEGER NOT NULL,            -- it has got what there was when it came
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, execution, reader)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    queues TEXT NOT NULL,
    kinds TEXT NOT NULL DEFAULT '[]',   -- kind and queue of what its claims asked for
    host TEXT NOT NULL,                 -- host and boot: where its byte lock means something
    lock_at INTEGER NOT NULL,           -- the byte of the lock file it holds while it lives
    seen_at INTEGER NOT NULL,
    alive_until INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX agent_definition_slug ON agent_definition (org_id, slug);

CREATE UNIQUE INDEX agent_entry_id ON agent_entry (id);

CREATE UNIQUE INDEX agent_entry_once ON agent_entry (run, once_name, once_n) WHERE once_name IS NOT NULL;

CREATE INDEX agent_execution_due ON agent_execution (due_at) WHERE due_at IS NOT NULL;

CREATE INDEX agent_execution_ended ON agent_execution (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX agent_execution_forks ON agent_execution (forked_run) WHERE forked_run IS NOT NULL;

CREATE INDEX agent_execution_held ON agent_execution (worker) WHERE worker IS NOT NULL;

CREATE INDEX agent_execution_host_timer ON agent_execution (org_id, last_worker) WHERE host_timer = 1;

CREATE UNIQUE INDEX agent_execution_id ON agent_execution (org_id, id);

CREATE INDEX agent_execution_key_held ON agent_execution (org_id, concurrency_key)
    WHERE status = 1 AND concurrency_key IS NOT NULL;

CREATE INDEX agent_execution_lone ON agent_execution (org_id, queue, kind)
    WHERE ready = 1 AND status = 0 AND no_worker IS NOT epoch;

CREATE INDEX agent_execution_newest ON agent_execution (org_id, created_at, id);

CREATE INDEX agent_execution_parent ON agent_execution (parent_id) WHERE parent_id IS NOT NULL;

CREATE INDEX agent_execution_preferred ON agent_execution (org_id, last_worker) WHERE prefer_until IS NOT NULL;

CREATE INDEX agent_execution_ready ON agent_execution (org_id, queue, kind, priority DESC, created_at, id) WHERE ready = 1;

CREATE INDEX agent_execution_root ON agent_execution (root_id) WHERE parent_id IS NOT NULL;

CREATE INDEX agent_op_armed ON agent_op (place) WHERE due_at IS NOT NULL;

CREATE INDEX agent_op_due ON agent_op (due_at) WHERE due_at IS NOT NULL;

CREATE UNIQUE INDEX agent_op_once ON agent_op (run, once_name, once_n) WHERE once_name IS NOT NULL;

CREATE UNIQUE INDEX agent_signal_id ON agent_signal (id);

CREATE UNIQUE INDEX agent_signal_key ON agent_signal (run, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX agent_signal_mailbox ON agent_signal (run, consumed_segment);

CREATE INDEX audit_newest ON audit (org_id, id);

CREATE INDEX local_value_hash ON local_value (hash);

CREATE UNIQUE INDEX machine_name ON machine (org_id, name) WHERE revoked_at IS NULL;

CREATE UNIQUE INDEX organization_name ON organization (name);

CREATE UNIQUE INDEX payload_hash ON payload (org_id, hash);

CREATE INDEX payload_reference_run ON payload_reference (run);

CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;

CREATE INDEX task_execution_detached ON task_execution (place) WHERE detached = 1;

CREATE INDEX task_execution_due ON task_execution (due_at) WHERE due_at IS NOT NULL;

CREATE INDEX task_execution_held ON task_execution (worker) WHERE lease_expires IS NOT NULL;

CREATE INDEX task_execution_lone ON task_execution (org_id, queue, kind, visible_at)
    WHERE status = 0 AND no_worker IS NOT visible_at;

CREATE UNIQUE INDEX task_execution_once ON task_execution (run, once_name, once_n) WHERE once_name IS NOT NULL;

CREATE INDEX task_execution_open ON task_execution (place) WHERE ended_at IS NULL;

CREATE UNIQUE INDEX task_execution_open_id ON task_execution (id) WHERE ended_at IS NULL;

CREATE INDEX task_execution_ready ON task_execution (org_id, queue, kind, visible_at) WHERE status = 0;

