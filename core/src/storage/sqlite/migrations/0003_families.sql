-- What a run has of the budgets of its family, and whether it goes on when its parent ends.
ALTER TABLE agent_execution ADD COLUMN purse TEXT;
ALTER TABLE agent_execution ADD COLUMN detached INTEGER NOT NULL DEFAULT 0;
UPDATE agent_execution SET purse = '{}' WHERE limits LIKE '%"budget":"%';
