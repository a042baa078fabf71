-- Generated from the migrations; `FLOVYN_BLESS=1 cargo test` writes it.

CREATE TABLE agent_checkpoint (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    sequence integer NOT NULL,
    leaves text NOT NULL,
    metadata text NOT NULL,
    usage text NOT NULL,
    hash bytea NOT NULL,
    created_at bigint NOT NULL,
    state bytea NOT NULL,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, sequence)
);
ALTER TABLE agent_checkpoint FORCE ROW LEVEL SECURITY;

CREATE TABLE agent_definition (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    slug text COLLATE "C" NOT NULL,
    spec text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, slug)
);
ALTER TABLE agent_definition FORCE ROW LEVEL SECURITY;

CREATE TABLE agent_entry (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    segment integer NOT NULL,
    sequence integer NOT NULL,
    id uuid NOT NULL,
    parent_id uuid,
    depth integer NOT NULL,
    thread text NOT NULL,
    role text NOT NULL,
    entry_type text NOT NULL,
    turn_id text,
    metadata text,
    label_name text,
    label_key bytea NOT NULL,
    seen bytea,
    once_name text COLLATE "C",
    once_n integer,
    created_at bigint NOT NULL,
    content bytea NOT NULL,
    FOREIGN KEY (org_id, parent_id) REFERENCES agent_entry(org_id, id),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, segment, sequence),
    UNIQUE (org_id, id)
);
CREATE UNIQUE INDEX agent_entry_once ON agent_entry USING btree (org_id, run, once_name, once_n) WHERE (once_name IS NOT NULL);
CREATE INDEX agent_entry_parent ON agent_entry USING btree (org_id, parent_id) WHERE (parent_id IS NOT NULL);
ALTER TABLE agent_entry FORCE ROW LEVEL SECURITY;

CREATE TABLE agent_execution (
    org_id uuid NOT NULL,
    run bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL,
    status smallint NOT NULL,
    ready boolean NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    worker uuid,
    last_worker uuid,
    lease_expires bigint,
    lease_ttl bigint NOT NULL DEFAULT 0,
    segment integer NOT NULL DEFAULT 0,
    claim_number bigint NOT NULL DEFAULT 0,
    base bigint NOT NULL DEFAULT 0,
    top integer NOT NULL DEFAULT 0,
    fact_high bigint NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    quarantined boolean NOT NULL DEFAULT false,
    step_count integer NOT NULL DEFAULT 0,
    step_limit integer,
    tail_limit bigint NOT NULL,
    leaf uuid,
    code text,
    cancel_number bigint,
    cancel_mode smallint,
    cancel_grace bigint,
    cancel_until bigint,
    begins_at bigint,
    ends_at bigint,
    due_at bigint,
    wait text,
    host_timer boolean NOT NULL DEFAULT false,
    no_worker bigint,
    prefer_until bigint,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    key text COLLATE "C",
    input_digest bytea NOT NULL,
    limits text NOT NULL,
    budget text,
    metadata text,
    concurrency_key text COLLATE "C",
    concurrency_limit integer,
    concurrency_slot integer NOT NULL DEFAULT 0,
    traceparent text,
    usage text,
    parent_id uuid,
    root_id uuid NOT NULL,
    forked_run bigint,
    forked_id uuid,
    forked_segment integer,
    forked_sequence integer,
    forked_high bigint,
    forked_base bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ended_at bigint,
    failure text,
    input bytea NOT NULL,
    output bytea,
    children integer NOT NULL DEFAULT 0,
    depth integer NOT NULL DEFAULT 0,
    purse text,
    detached boolean NOT NULL DEFAULT false,
    shared_context text,
    handed_to uuid,
    starts_by bigint,
    persistence smallint NOT NULL DEFAULT 0,
    FOREIGN KEY (org_id, forked_run) REFERENCES agent_execution(org_id, run),
    FOREIGN KEY (org_id, parent_id) REFERENCES agent_execution(org_id, id),
    PRIMARY KEY (org_id, run),
    UNIQUE (org_id, id)
) WITH (fillfactor=80);
CREATE INDEX agent_execution_due ON agent_execution USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX agent_execution_ended ON agent_execution USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX agent_execution_forks ON agent_execution USING btree (org_id, forked_run) WHERE (forked_run IS NOT NULL);
CREATE INDEX agent_execution_held ON agent_execution USING btree (worker) WHERE (worker IS NOT NULL);
CREATE INDEX agent_execution_host_timer ON agent_execution USING btree (org_id, last_worker) WHERE host_timer;
CREATE UNIQUE INDEX agent_execution_key_held ON agent_execution USING btree (org_id, concurrency_key, concurrency_slot) WHERE ((status = 1) AND (concurrency_key IS NOT NULL));
CREATE INDEX agent_execution_kind ON agent_execution USING btree (org_id, kind, created_at, id);
CREATE INDEX agent_execution_lone ON agent_execution USING btree (org_id, queue, kind, run) WHERE (ready AND (status = 0) AND (no_worker IS DISTINCT FROM epoch));
CREATE INDEX agent_execution_newest ON agent_execution USING btree (org_id, created_at, id);
CREATE INDEX agent_execution_parent ON agent_execution USING btree (org_id, parent_id, created_at, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX agent_execution_preferred ON agent_execution USING btree (org_id, last_worker) WHERE (prefer_until IS NOT NULL);
CREATE INDEX agent_execution_ready ON agent_execution USING btree (org_id, queue, kind, priority DESC, created_at, id) WHERE ready;
CREATE INDEX agent_execution_root ON agent_execution USING btree (org_id, root_id, created_at, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX agent_execution_status ON agent_execution USING btree (org_id, status, created_at, id) WHERE (status <> 5);
ALTER TABLE agent_execution FORCE ROW LEVEL SECURITY;

CREATE TABLE agent_op (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    segment integer NOT NULL,
    sequence integer NOT NULL,
    kind smallint NOT NULL,
    label_name text NOT NULL,
    label_key bytea NOT NULL,
    seen bytea,
    once_name text COLLATE "C",
    once_n integer,
    due_at bigint,
    fired bigint,
    fired_at bigint,
    count integer,
    data text,
    target bytea,
    value bytea,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, segment, sequence)
);
CREATE INDEX agent_op_armed ON agent_op USING btree (org_id, run) WHERE (due_at IS NOT NULL);
CREATE INDEX agent_op_due ON agent_op USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE UNIQUE INDEX agent_op_once ON agent_op USING btree (org_id, run, once_name, once_n) WHERE (once_name IS NOT NULL);
ALTER TABLE agent_op FORCE ROW LEVEL SECURITY;

CREATE TABLE agent_signal (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    number bigint NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    delivery smallint NOT NULL,
    idempotency_key text COLLATE "C",
    consumed_segment integer,
    consumed_sequence integer,
    consumed_commit bigint,
    created_at bigint NOT NULL,
    payload bytea NOT NULL,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, number),
    UNIQUE (org_id, id)
);
CREATE UNIQUE INDEX agent_signal_key ON agent_signal USING btree (org_id, run, idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX agent_signal_mailbox ON agent_signal USING btree (org_id, run, consumed_segment);
ALTER TABLE agent_signal FORCE ROW LEVEL SECURITY;

CREATE TABLE api_key (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scopes text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    PRIMARY KEY (org_id, id),
    UNIQUE (hash)
);
ALTER TABLE api_key FORCE ROW LEVEL SECURITY;

CREATE TABLE audit (
    org_id uuid NOT NULL,
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    data text,
    seal bytea,
    PRIMARY KEY (org_id, id)
);
ALTER TABLE audit FORCE ROW LEVEL SECURITY;

CREATE TABLE commit_request (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    number bigint NOT NULL,
    high bigint NOT NULL,
    at bigint NOT NULL,
    request_id uuid NOT NULL,
    digest bytea NOT NULL,
    top integer NOT NULL,
    known bigint NOT NULL,
    fact_high bigint NOT NULL,
    outcome smallint NOT NULL,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, number)
);
ALTER TABLE commit_request FORCE ROW LEVEL SECURITY;

CREATE TABLE enrolled_worker (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    serves text NOT NULL,
    seen_at bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX enrolled_worker_seen ON enrolled_worker USING btree (seen_at);
ALTER TABLE enrolled_worker FORCE ROW LEVEL SECURITY;

CREATE TABLE event (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    kind smallint NOT NULL,
    segment integer NOT NULL,
    sequence integer,
    data text,
    commit_number bigint,
    committed_at bigint,
    request_id uuid,
    digest bytea,
    top integer,
    known bigint,
    fact_high bigint,
    outcome smallint,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, number)
);
ALTER TABLE event FORCE ROW LEVEL SECURITY;

CREATE TABLE flovyn_schema (
    version integer NOT NULL
);

CREATE TABLE ledger (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    task_id uuid NOT NULL,
    attempt integer NOT NULL,
    reserved text NOT NULL,
    settled text,
    created_at bigint NOT NULL,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, task_id, attempt)
);
ALTER TABLE ledger FORCE ROW LEVEL SECURITY;

CREATE TABLE machine (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    owner text NOT NULL,
    key_id uuid NOT NULL,
    offers text NOT NULL,
    created_at bigint NOT NULL,
    seen_at bigint,
    revoked_at bigint,
    PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX machine_name ON machine USING btree (org_id, name) WHERE (revoked_at IS NULL);
ALTER TABLE machine FORCE ROW LEVEL SECURITY;

CREATE TABLE machine_pairing (
    secret bytea NOT NULL,
    code text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    org_id uuid,
    owner text,
    actor text,
    not_after bigint,
    PRIMARY KEY (secret),
    UNIQUE (code)
);
ALTER TABLE machine_pairing FORCE ROW LEVEL SECURITY;

CREATE TABLE organization (
    org_id uuid NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    limits text,
    PRIMARY KEY (org_id)
);
CREATE UNIQUE INDEX organization_name ON organization USING btree (name);
ALTER TABLE organization FORCE ROW LEVEL SECURITY;

CREATE TABLE payload (
    org_id uuid NOT NULL,
    hash bytea NOT NULL,
    size bigint NOT NULL,
    complete boolean NOT NULL,
    touched_at bigint NOT NULL,
    PRIMARY KEY (org_id, hash)
);
CREATE INDEX payload_touched ON payload USING btree (touched_at);
ALTER TABLE payload FORCE ROW LEVEL SECURITY;

CREATE TABLE payload_piece (
    org_id uuid NOT NULL,
    hash bytea NOT NULL,
    n integer NOT NULL,
    zstd boolean NOT NULL,
    data bytea NOT NULL,
    FOREIGN KEY (org_id, hash) REFERENCES payload(org_id, hash) ON DELETE CASCADE,
    PRIMARY KEY (org_id, hash, n)
);
ALTER TABLE payload_piece FORCE ROW LEVEL SECURITY;

CREATE TABLE payload_reference (
    org_id uuid NOT NULL,
    hash bytea NOT NULL,
    run bigint NOT NULL,
    FOREIGN KEY (org_id, hash) REFERENCES payload(org_id, hash),
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, hash, run)
);
CREATE INDEX payload_reference_run ON payload_reference USING btree (org_id, run);
ALTER TABLE payload_reference FORCE ROW LEVEL SECURITY;

CREATE TABLE preview (
    org_id uuid NOT NULL,
    execution uuid NOT NULL,
    segment integer NOT NULL,
    sequence integer NOT NULL,
    epoch bigint NOT NULL,
    attempt integer NOT NULL,
    seq bigint NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (org_id, execution, segment, sequence, epoch, attempt, seq)
);
ALTER TABLE preview FORCE ROW LEVEL SECURITY;

CREATE TABLE queue_limit (
    org_id uuid NOT NULL,
    queue text COLLATE "C" NOT NULL,
    spec text NOT NULL,
    paid_until bigint NOT NULL DEFAULT 0,
    opens_at bigint,
    PRIMARY KEY (org_id, queue)
);
CREATE INDEX queue_limit_opens ON queue_limit USING btree (opens_at) WHERE (opens_at IS NOT NULL);
ALTER TABLE queue_limit FORCE ROW LEVEL SECURITY;

CREATE TABLE resume_request (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    request_id uuid NOT NULL,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, request_id)
);
ALTER TABLE resume_request FORCE ROW LEVEL SECURITY;

CREATE TABLE schedule (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    spec text NOT NULL,
    next_at bigint,
    created_at bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX schedule_due ON schedule USING btree (next_at) WHERE (next_at IS NOT NULL);
ALTER TABLE schedule FORCE ROW LEVEL SECURITY;

CREATE TABLE signal_return (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    number bigint NOT NULL,
    returned_commit bigint NOT NULL,
    segment integer NOT NULL,
    sequence integer NOT NULL,
    consumed_commit bigint NOT NULL,
    FOREIGN KEY (org_id, run, number) REFERENCES agent_signal(org_id, run, number),
    PRIMARY KEY (org_id, run, number, returned_commit)
);
ALTER TABLE signal_return FORCE ROW LEVEL SECURITY;

CREATE TABLE task_execution (
    org_id uuid NOT NULL,
    run bigint NOT NULL,
    segment integer NOT NULL,
    sequence integer NOT NULL,
    id uuid NOT NULL,
    status smallint NOT NULL,
    placement smallint NOT NULL,
    attempt integer NOT NULL,
    failed_attempts integer NOT NULL,
    losses integer NOT NULL,
    reconcile boolean,
    epoch bigint,
    ended_number bigint,
    detached boolean,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    entry_id uuid,
    visible_at bigint NOT NULL,
    worker uuid,
    lease_expires bigint,
    sign_at bigint,
    no_worker bigint,
    stop boolean,
    due_at bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    label_name text,
    label_key bytea NOT NULL,
    seen bytea,
    once_name text COLLATE "C",
    once_n integer,
    options text,
    progress text,
    failure text,
    input bytea NOT NULL,
    output bytea,
    FOREIGN KEY (org_id, run) REFERENCES agent_execution(org_id, run),
    PRIMARY KEY (org_id, run, segment, sequence),
    UNIQUE (org_id, id)
);
CREATE INDEX task_execution_detached ON task_execution USING btree (org_id, run) WHERE detached;
CREATE INDEX task_execution_due ON task_execution USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX task_execution_held ON task_execution USING btree (worker) WHERE (lease_expires IS NOT NULL);
CREATE INDEX task_execution_lone ON task_execution USING btree (org_id, queue, kind, visible_at) WHERE ((status = 0) AND (no_worker IS DISTINCT FROM visible_at));
CREATE UNIQUE INDEX task_execution_once ON task_execution USING btree (org_id, run, once_name, once_n) WHERE (once_name IS NOT NULL);
CREATE INDEX task_execution_open ON task_execution USING btree (org_id, run) WHERE (ended_at IS NULL);
CREATE INDEX task_execution_ready ON task_execution USING btree (org_id, queue, kind, visible_at, created_at, id) WHERE (status = 0);
ALTER TABLE task_execution FORCE ROW LEVEL SECURITY;

CREATE TABLE watch (
    org_id uuid NOT NULL,
    execution uuid NOT NULL,
    reader uuid NOT NULL,
    served boolean NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (org_id, execution, reader)
);
CREATE INDEX watch_expires ON watch USING btree (expires_at);
ALTER TABLE watch FORCE ROW LEVEL SECURITY;

CREATE TABLE worker (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    queues text NOT NULL,
    kinds text NOT NULL DEFAULT '[]'::text,
    seen_at bigint NOT NULL,
    alive_until bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX worker_alive ON worker USING btree (alive_until);
ALTER TABLE worker FORCE ROW LEVEL SECURITY;
