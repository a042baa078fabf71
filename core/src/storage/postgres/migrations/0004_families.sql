-- What a run has of the budgets of its family, and whether it goes on when its parent ends.
ALTER TABLE agent_execution ADD COLUMN purse TEXT, ADD COLUMN detached BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE agent_execution SET purse = '{}' WHERE limits LIKE '%"budget":"%';
-- One run may have most of all runs below it. What the planner learned of such a table would let it read all runs of the org
-- for each of them, and not the index of parents.
ALTER TABLE agent_execution ALTER COLUMN parent_id SET (n_distinct = -0.2), ALTER COLUMN root_id SET (n_distinct = -0.2);
