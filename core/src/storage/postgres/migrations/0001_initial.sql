-- The schema.
--
-- Rows of a run are found by (org_id, run), where `run` is its compact number; then comes the place of an op
-- (segment, sequence), or the number of an event, request, signal or checkpoint. Every unique key starts with the org, and
-- foreign keys carry it too: a row of one org cannot refer to a row of another.
-- Moments are microseconds since 1970, statuses and kinds are numbers that core gives them.
-- A payload column is bytes with a tag in front (values.rs), so that any value fits into it.

CREATE TABLE organization (
    org_id UUID NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    limits TEXT                          -- what its callers may ask for together, as JSON; nothing where it is NULL
);
CREATE UNIQUE INDEX organization_name ON organization (name);

CREATE TABLE api_key (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    name TEXT NOT NULL,
    hash BYTEA NOT NULL UNIQUE,
    scopes TEXT NOT NULL,                -- of which a role is a set
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (org_id, id)
);

-- A predefined agent is made by its user and named by a slug.
CREATE TABLE agent_definition (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    slug TEXT COLLATE "C" NOT NULL,
    spec TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, slug)
);

CREATE TABLE agent_execution (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
    id UUID NOT NULL,
    status SMALLINT NOT NULL,            -- the place in Status::ALL
    ready BOOLEAN NOT NULL,              -- may be claimed now
    epoch BIGINT NOT NULL DEFAULT 0,
    worker UUID,                         -- who holds it
    last_worker UUID,                    -- whose commit suspended, paused or ended it in this epoch
    lease_expires BIGINT,
    lease_ttl BIGINT NOT NULL DEFAULT 0,
    segment INTEGER NOT NULL DEFAULT 0,
    claim_number BIGINT NOT NULL DEFAULT 0, -- the event of the last claim
    base BIGINT NOT NULL DEFAULT 0,      -- commits, next free sequence and highest fact as of the last claim;
    top INTEGER NOT NULL DEFAULT 0,      -- later ones are on the events since
    fact_high BIGINT NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    quarantined BOOLEAN NOT NULL DEFAULT FALSE, -- may have a quarantined task
    step_count INTEGER NOT NULL DEFAULT 0,
    step_limit INTEGER,
    tail_limit BIGINT NOT NULL,
    leaf UUID,
    code TEXT,
    cancel_number BIGINT,
    cancel_mode SMALLINT,
    cancel_grace BIGINT,
    cancel_until BIGINT,
    begins_at BIGINT,                    -- a delayed start
    ends_at BIGINT,                      -- created_at plus the timeout
    due_at BIGINT,                       -- when housekeeping must look at it
    wait TEXT,
    host_timer BOOLEAN NOT NULL DEFAULT FALSE, -- it waits by a timer of its last holder's process
    no_worker BIGINT,                    -- the epoch whose wait for a worker it was told of
    prefer_until BIGINT,                 -- until when only its last worker, which has it parked, may claim it
    kind TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    key TEXT COLLATE "C",
    input_digest BYTEA NOT NULL,
    limits TEXT NOT NULL,
    budget TEXT,
    metadata TEXT,
    concurrency_key TEXT COLLATE "C",
    concurrency_limit INTEGER,           -- how many runs of the key may be RUNNING; one where it is NULL
    concurrency_slot INTEGER NOT NULL DEFAULT 0, -- its place among them
    traceparent TEXT,
    usage TEXT,
    parent_id UUID,
    root_id UUID NOT NULL,
    forked_run BIGINT,
    forked_id UUID,
    forked_segment INTEGER,
    forked_sequence INTEGER,
    forked_high BIGINT,                  -- the parent's last event and commit when the fork was made
    forked_base BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT,
    failure TEXT,
    input BYTEA NOT NULL,
    output BYTEA,
    PRIMARY KEY (org_id, run),
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, parent_id) REFERENCES agent_execution (org_id, id),
    FOREIGN KEY (org_id, forked_run) REFERENCES agent_execution (org_id, run)
) WITH (fillfactor = 80);
CREATE INDEX agent_execution_newest ON agent_execution (org_id, created_at, id);
CREATE INDEX agent_execution_ready ON agent_execution (org_id, queue, kind, priority DESC, created_at, id) WHERE ready;
CREATE INDEX agent_execution_due ON agent_execution (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX agent_execution_ended ON agent_execution (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX agent_execution_held ON agent_execution (worker) WHERE worker IS NOT NULL;
-- Each RUNNING run of a key has a place of its own: claims of several servers that take the same one meet here.
CREATE UNIQUE INDEX agent_execution_key_held ON agent_execution (org_id, concurrency_key, concurrency_slot)
    WHERE status = 1 AND concurrency_key IS NOT NULL;
CREATE INDEX agent_execution_host_timer ON agent_execution (org_id, last_worker) WHERE host_timer;
CREATE INDEX agent_execution_preferred ON agent_execution (org_id, last_worker) WHERE prefer_until IS NOT NULL;
CREATE INDEX agent_execution_parent ON agent_execution (org_id, parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX agent_execution_root ON agent_execution (org_id, root_id, created_at, id) WHERE parent_id IS NOT NULL;
-- Listings of a kind and of the statuses that few runs have.
CREATE INDEX agent_execution_kind ON agent_execution (org_id, kind, created_at, id);
CREATE INDEX agent_execution_status ON agent_execution (org_id, status, created_at, id) WHERE status <> 5;
-- Work that waits for a worker and whose run was not told so: in the order in which it is told of.
CREATE INDEX agent_execution_lone ON agent_execution (org_id, queue, kind, run)
    WHERE ready AND status = 0 AND no_worker IS DISTINCT FROM epoch;
CREATE INDEX agent_execution_forks ON agent_execution (org_id, forked_run) WHERE forked_run IS NOT NULL;

-- Ops that leave no other row.
CREATE TABLE agent_op (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    kind SMALLINT NOT NULL,
    label_name TEXT NOT NULL,
    label_key BYTEA NOT NULL,            -- tagged: the author's key or a digest
    seen BYTEA,
    once_name TEXT COLLATE "C",
    once_n INTEGER,
    due_at BIGINT,                       -- an armed timer
    fired BIGINT,                        -- its fact number
    fired_at BIGINT,
    count INTEGER,                       -- a read's repetitions; an abandoned op's sequence
    data TEXT,                           -- what a call cost
    target BYTEA,                        -- an attached task; a once's digest
    value BYTEA,                         -- a read's answer, a once's result
    PRIMARY KEY (org_id, run, segment, sequence),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);
CREATE INDEX agent_op_due ON agent_op (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX agent_op_armed ON agent_op (org_id, run) WHERE due_at IS NOT NULL;
CREATE UNIQUE INDEX agent_op_once ON agent_op (org_id, run, once_name, once_n) WHERE once_name IS NOT NULL;

CREATE TABLE agent_entry (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    id UUID NOT NULL,
    parent_id UUID,
    depth INTEGER NOT NULL,
    thread TEXT NOT NULL,
    role TEXT NOT NULL,
    entry_type TEXT NOT NULL,
    turn_id TEXT,
    metadata TEXT,
    label_name TEXT,                     -- where it is not the role
    label_key BYTEA NOT NULL,
    seen BYTEA,
    once_name TEXT COLLATE "C",
    once_n INTEGER,
    created_at BIGINT NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (org_id, run, segment, sequence),
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run),
    FOREIGN KEY (org_id, parent_id) REFERENCES agent_entry (org_id, id)
);
CREATE INDEX agent_entry_parent ON agent_entry (org_id, parent_id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX agent_entry_once ON agent_entry (org_id, run, once_name, once_n) WHERE once_name IS NOT NULL;

CREATE TABLE task_execution (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    id UUID NOT NULL,
    status SMALLINT NOT NULL,            -- the place in TASK_STATUS
    placement SMALLINT NOT NULL,         -- 0 inline, 1 queue, 2 queue after an inline attempt
    attempt INTEGER NOT NULL,
    failed_attempts INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    reconcile BOOLEAN,                   -- the next claim asks the author's `reconcile`
    epoch BIGINT,                        -- the claim of the run under which an inline attempt started
    ended_number BIGINT,                 -- its fact number
    detached BOOLEAN,
    kind TEXT COLLATE "C" NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    entry_id UUID,
    visible_at BIGINT NOT NULL,
    worker UUID,
    lease_expires BIGINT,
    sign_at BIGINT,                      -- the last sign of a claimed attempt
    no_worker BIGINT,                    -- since when it was visible as its run was told that nobody serves it
    stop BOOLEAN,                        -- its run was asked to stop while it was open
    due_at BIGINT,                       -- when housekeeping must look at it
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    label_name TEXT,                     -- where it is not the kind
    label_key BYTEA NOT NULL,
    seen BYTEA,
    once_name TEXT COLLATE "C",
    once_n INTEGER,
    options TEXT,                        -- where they are not the defaults
    progress TEXT,
    failure TEXT,
    input BYTEA NOT NULL,
    output BYTEA,
    PRIMARY KEY (org_id, run, segment, sequence),
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);
CREATE INDEX task_execution_ready ON task_execution (org_id, queue, kind, visible_at, created_at, id) WHERE status = 0;
CREATE INDEX task_execution_due ON task_execution (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX task_execution_open ON task_execution (org_id, run) WHERE ended_at IS NULL;
CREATE INDEX task_execution_held ON task_execution (worker) WHERE lease_expires IS NOT NULL;
CREATE INDEX task_execution_detached ON task_execution (org_id, run) WHERE detached;
CREATE UNIQUE INDEX task_execution_once ON task_execution (org_id, run, once_name, once_n) WHERE once_name IS NOT NULL;
CREATE INDEX task_execution_lone ON task_execution (org_id, queue, kind, visible_at)
    WHERE status = 0 AND no_worker IS DISTINCT FROM visible_at;

CREATE TABLE agent_checkpoint (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    sequence INTEGER NOT NULL,
    leaves TEXT NOT NULL,
    metadata TEXT NOT NULL,
    usage TEXT NOT NULL,
    hash BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    state BYTEA NOT NULL,
    PRIMARY KEY (org_id, run, sequence),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);

CREATE TABLE agent_signal (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    number BIGINT NOT NULL,
    id UUID NOT NULL,
    name TEXT NOT NULL,
    delivery SMALLINT NOT NULL,
    idempotency_key TEXT COLLATE "C",
    consumed_segment INTEGER,
    consumed_sequence INTEGER,
    consumed_commit BIGINT,
    created_at BIGINT NOT NULL,
    payload BYTEA NOT NULL,
    PRIMARY KEY (org_id, run, number),
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);
CREATE INDEX agent_signal_mailbox ON agent_signal (org_id, run, consumed_segment);
CREATE UNIQUE INDEX agent_signal_key ON agent_signal (org_id, run, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Commits that were followed by another one without an event between them; all others sit on their last event.
CREATE TABLE commit_request (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    number BIGINT NOT NULL,
    high BIGINT NOT NULL,
    at BIGINT NOT NULL,
    request_id UUID NOT NULL,
    digest BYTEA NOT NULL,
    top INTEGER NOT NULL,
    known BIGINT NOT NULL,
    fact_high BIGINT NOT NULL,
    outcome SMALLINT NOT NULL,
    PRIMARY KEY (org_id, run, number),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);

-- Requests to continue a paused run that were carried out.
CREATE TABLE resume_request (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    request_id UUID NOT NULL,
    PRIMARY KEY (org_id, run, request_id),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);

CREATE TABLE event (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER,
    data TEXT,
    -- The commit after which this was the last event: enough to give its answer again.
    commit_number BIGINT,
    committed_at BIGINT,
    request_id UUID,
    digest BYTEA,
    top INTEGER,                         -- the next free sequence of the segment
    known BIGINT,
    fact_high BIGINT,
    outcome SMALLINT,                    -- 0 continue, 1 suspended, 2 + status finished; 16 times the pause's reason
    PRIMARY KEY (org_id, run, number),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);

CREATE TABLE payload (
    org_id UUID NOT NULL,
    hash BYTEA NOT NULL,
    size BIGINT NOT NULL,
    complete BOOLEAN NOT NULL,
    touched_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, hash)
);
CREATE INDEX payload_touched ON payload (touched_at);

-- Pieces of 1 MiB. They are compressed before they come here.
CREATE TABLE payload_piece (
    org_id UUID NOT NULL,
    hash BYTEA NOT NULL,
    n INTEGER NOT NULL,
    zstd BOOLEAN NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (org_id, hash, n),
    FOREIGN KEY (org_id, hash) REFERENCES payload (org_id, hash) ON DELETE CASCADE
);
ALTER TABLE payload_piece ALTER COLUMN data SET STORAGE EXTERNAL;

-- Which runs refer to a payload: what the collector of unreferenced ones asks.
CREATE TABLE payload_reference (
    org_id UUID NOT NULL,
    hash BYTEA NOT NULL,
    run BIGINT NOT NULL,
    PRIMARY KEY (org_id, hash, run),
    FOREIGN KEY (org_id, hash) REFERENCES payload (org_id, hash),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);
CREATE INDEX payload_reference_run ON payload_reference (org_id, run);

CREATE TABLE worker (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    name TEXT NOT NULL,
    queues TEXT NOT NULL,
    kinds TEXT NOT NULL DEFAULT '[]',    -- kind and queue of what its claims asked for
    seen_at BIGINT NOT NULL,
    alive_until BIGINT NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX worker_alive ON worker (alive_until);

-- What workers have said that they can run, whose polls do not say it.
CREATE TABLE enrolled_worker (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    serves TEXT NOT NULL,               -- {agents, tasks}: kinds
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX enrolled_worker_seen ON enrolled_worker (seen_at);

-- Who reads a run's previews in another process than its worker's, and what was written for those readers.
CREATE TABLE watch (
    org_id UUID NOT NULL,
    execution UUID NOT NULL,
    reader UUID NOT NULL,                -- a process
    served BOOLEAN NOT NULL,             -- it has got what there was when it came
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, execution, reader)
);
CREATE INDEX watch_expires ON watch (expires_at);

-- Previews for those readers, told apart by what makes them and how far that has come.
CREATE TABLE preview (
    org_id UUID NOT NULL,
    execution UUID NOT NULL,
    segment INTEGER NOT NULL,            -- of the task; 0 for what the agent itself made
    sequence INTEGER NOT NULL,           -- -1 for what the agent itself made
    epoch BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    seq BIGINT NOT NULL,                 -- of the last preview in the row
    data TEXT NOT NULL,
    PRIMARY KEY (org_id, execution, segment, sequence, epoch, attempt, seq)
);

-- A schedule is named by its user, and found by its next tick.
CREATE TABLE schedule (
    org_id UUID NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    spec TEXT NOT NULL,
    next_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id)
);

CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;

-- Limits of queues, with what they have let through and when they are to be looked at again.
CREATE TABLE queue_limit (
    org_id UUID NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    spec TEXT NOT NULL,
    paid_until BIGINT NOT NULL DEFAULT 0,
    opens_at BIGINT,
    PRIMARY KEY (org_id, queue)
);
CREATE INDEX queue_limit_opens ON queue_limit (opens_at) WHERE opens_at IS NOT NULL;

CREATE TABLE ledger (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    task_id UUID NOT NULL,
    attempt INTEGER NOT NULL,
    reserved TEXT NOT NULL,
    settled TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, run, task_id, attempt),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution (org_id, run)
);

CREATE TABLE audit (
    org_id UUID NOT NULL,
    id BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT,
    seal BYTEA,                          -- of the row and those before it in its org
    PRIMARY KEY (org_id, id)
);

-- The second wall between organizations: a session sees the rows of the org that its transaction names in `flovyn.org`, of all
-- where that is `*`, and none where it names nothing. It holds for the owner of the tables too; superusers pass it.
DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'organization', 'api_key', 'agent_definition', 'agent_execution', 'agent_op', 'agent_entry', 'task_execution',
        'agent_checkpoint', 'agent_signal', 'commit_request', 'resume_request', 'event', 'payload', 'payload_piece',
        'payload_reference', 'worker', 'enrolled_worker', 'watch', 'preview', 'schedule', 'queue_limit',
        'ledger', 'audit'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY of_org ON %I USING (current_setting(''flovyn.org'', true) = ''*'' '
            'OR org_id::text = current_setting(''flovyn.org'', true))',
            name
        );
    END LOOP;
END
$$;
