-- Until when a worker must have begun a run.
ALTER TABLE agent_execution ADD COLUMN starts_by BIGINT;
