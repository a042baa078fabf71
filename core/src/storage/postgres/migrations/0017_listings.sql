-- Families are listed by age; limits that open, and workers that were forgotten, are found without the others.
DROP INDEX agent_execution_parent;
CREATE INDEX agent_execution_parent ON agent_execution (org_id, parent_id, created_at, id) WHERE parent_id IS NOT NULL;
DROP INDEX agent_execution_root;
CREATE INDEX agent_execution_root ON agent_execution (org_id, root_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX queue_limit_opens ON queue_limit (opens_at) WHERE opens_at IS NOT NULL;
CREATE INDEX enrolled_worker_seen ON enrolled_worker (seen_at);
