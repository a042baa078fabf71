-- What a run has of the budgets of its family, and whether it goes on when its parent ends.
ALTER TABLE agent_execution ADD COLUMN purse TEXT, ADD COLUMN detached BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE agent_execution SET purse = '{}' WHERE limits LIKE '%"budget":"%';
