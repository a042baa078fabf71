-- Ids are random: an index of all of them costs every step a page. Only open tasks are asked for by id alone.
DROP INDEX task_execution_id;

CREATE UNIQUE INDEX task_execution_open_id ON task_execution (id) WHERE ended_at IS NULL;
