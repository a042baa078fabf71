-- A worker belongs to an organization. Those that live make themselves known again by their next claim.
DROP TABLE worker;

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

DROP INDEX agent_execution_host_timer;

CREATE INDEX agent_execution_host_timer ON agent_execution (org_id, last_worker) WHERE host_timer = 1;

DROP INDEX agent_execution_preferred;

CREATE INDEX agent_execution_preferred ON agent_execution (org_id, last_worker) WHERE prefer_until IS NOT NULL;
