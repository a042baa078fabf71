-- Whether the journal of a run is kept: 0 full, 1 minimal, 2 ephemeral.
ALTER TABLE agent_execution ADD COLUMN persistence SMALLINT NOT NULL DEFAULT 0;
