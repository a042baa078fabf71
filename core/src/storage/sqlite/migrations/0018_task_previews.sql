-- Previews of tasks that queues handed out: they have no position, and are told apart by op, attempt and seq.
CREATE TABLE task_preview (
    org_id BLOB NOT NULL,
    execution BLOB NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER NOT NULL,               -- of the last preview in the row
    data TEXT NOT NULL,
    PRIMARY KEY (org_id, execution, segment, sequence, attempt, seq)
) STRICT, WITHOUT ROWID;
