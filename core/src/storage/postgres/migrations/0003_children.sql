-- How many children of a run have not ended, and how many runs are above it.
ALTER TABLE agent_execution ADD COLUMN children INTEGER NOT NULL DEFAULT 0, ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
