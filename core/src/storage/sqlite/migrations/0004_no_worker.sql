-- The wait for a worker that a run was told of: its epoch; since when the task was visible.
ALTER TABLE agent_execution ADD COLUMN no_worker INTEGER;
ALTER TABLE task_execution ADD COLUMN no_worker INTEGER;
