-- Waiting runs that a timer of their last holder's process may wake: found by that worker.
ALTER TABLE agent_execution ADD COLUMN host_timer INTEGER
    GENERATED ALWAYS AS (CASE WHEN status = 2 THEN json_extract(wait, '$.host_timer') END) VIRTUAL;
CREATE INDEX agent_execution_host_timer ON agent_execution (last_worker) WHERE host_timer = 1;
