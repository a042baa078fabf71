-- Work that waits for a worker and whose run was not told so: in the order in which it is told of.
CREATE INDEX agent_execution_lone ON agent_execution (org_id, queue, kind)
    WHERE ready = 1 AND status = 0 AND no_worker IS NOT epoch;
CREATE INDEX task_execution_lone ON task_execution (org_id, queue, kind, visible_at)
    WHERE status = 0 AND no_worker IS NOT visible_at;

-- Tasks that nobody will start, for their run has ended.
UPDATE task_execution SET no_worker = visible_at
    WHERE status = 0 AND (SELECT status FROM agent_execution WHERE run = task_execution.place >> 31) >= 5;
