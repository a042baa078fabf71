-- Runs that hold their concurrency key.
CREATE INDEX agent_execution_key_held ON agent_execution (org_id, concurrency_key)
    WHERE status = 1 AND concurrency_key IS NOT NULL;
