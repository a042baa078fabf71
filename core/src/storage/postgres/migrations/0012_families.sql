-- Whoever looks at a family looks for those below its root.
CREATE INDEX agent_execution_root ON agent_execution (org_id, root_id) WHERE parent_id IS NOT NULL;
