-- Ended runs by age, for those that go.
CREATE INDEX agent_execution_ended ON agent_execution (ended_at) WHERE ended_at IS NOT NULL;
