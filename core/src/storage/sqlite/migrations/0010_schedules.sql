-- A schedule is named by its user, and found by its next tick. Nothing was ever kept in the table before.
DROP TABLE schedule;
CREATE TABLE schedule (
    org_id BLOB NOT NULL,
    id TEXT NOT NULL,
    spec TEXT NOT NULL,
    next_at INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
