-- Listings of a kind and of the statuses that few runs have.
CREATE INDEX agent_execution_kind ON agent_execution (org_id, kind, created_at, id);
CREATE INDEX agent_execution_status ON agent_execution (org_id, status, created_at, id) WHERE status <> 5;

-- Work that waits for a worker and whose run was not told so.
CREATE INDEX agent_execution_lone ON agent_execution (org_id, queue, kind, run)
    WHERE ready AND no_worker IS DISTINCT FROM epoch;
CREATE INDEX task_execution_lone ON task_execution (org_id, queue, kind, run, segment, sequence)
    WHERE status = 0 AND no_worker IS DISTINCT FROM visible_at;
