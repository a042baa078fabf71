-- Until when only its last worker, which has it parked, may claim a woken run.
ALTER TABLE agent_execution ADD COLUMN prefer_until BIGINT;

CREATE INDEX agent_execution_preferred ON agent_execution (last_worker) WHERE prefer_until IS NOT NULL;
