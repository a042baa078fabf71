-- How many runs of a concurrency key may be RUNNING; one where it is NULL. Each has a place of its own among them: claims of
-- several servers that take the same one meet here.
ALTER TABLE agent_execution ADD COLUMN concurrency_limit INT, ADD COLUMN concurrency_slot INT NOT NULL DEFAULT 0;
DROP INDEX agent_execution_key_held;
CREATE UNIQUE INDEX agent_execution_key_held ON agent_execution (org_id, concurrency_key, concurrency_slot)
    WHERE status = 1 AND concurrency_key IS NOT NULL;
