-- Previews of tasks that queues handed out: they have no position, and are told apart by op, attempt and seq.
CREATE TABLE task_preview (
    org_id UUID NOT NULL,
    execution UUID NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq BIGINT NOT NULL,                 -- of the last preview in the row
    data TEXT NOT NULL,
    PRIMARY KEY (org_id, execution, segment, sequence, attempt, seq)
);
ALTER TABLE task_preview ENABLE ROW LEVEL SECURITY;
ALTER TABLE task_preview FORCE ROW LEVEL SECURITY;
CREATE POLICY of_org ON task_preview USING (current_setting('flovyn.org', true) = '*'
    OR org_id::text = current_setting('flovyn.org', true));
