-- The run that a run has given its work to.
ALTER TABLE agent_execution ADD COLUMN handed_to UUID;
