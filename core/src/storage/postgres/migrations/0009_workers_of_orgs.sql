-- A worker belongs to an organization. Those that live make themselves known again by their next claim.
DROP TABLE worker;

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

DROP INDEX agent_execution_host_timer;
CREATE INDEX agent_execution_host_timer ON agent_execution (org_id, last_worker) WHERE host_timer;

DROP INDEX agent_execution_preferred;
CREATE INDEX agent_execution_preferred ON agent_execution (org_id, last_worker) WHERE prefer_until IS NOT NULL;
