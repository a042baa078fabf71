-- How many runs of a concurrency key may be RUNNING; one where it is NULL.
ALTER TABLE agent_execution ADD COLUMN concurrency_limit INTEGER;
