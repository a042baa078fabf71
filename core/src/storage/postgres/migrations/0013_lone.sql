-- Work that waits for a worker and whose run was not told so: in the order in which it is told of.
DROP INDEX agent_execution_lone;
CREATE INDEX agent_execution_lone ON agent_execution (org_id, queue, kind, run)
    WHERE ready AND status = 0 AND no_worker IS DISTINCT FROM epoch;
DROP INDEX task_execution_lone;
CREATE INDEX task_execution_lone ON task_execution (org_id, queue, kind, visible_at)
    WHERE status = 0 AND no_worker IS DISTINCT FROM visible_at;

-- Tasks that nobody will start, for their run has ended.
UPDATE task_execution t SET no_worker = t.visible_at FROM agent_execution x
    WHERE x.org_id = t.org_id AND x.run = t.run AND t.status = 0 AND x.status >= 5;
