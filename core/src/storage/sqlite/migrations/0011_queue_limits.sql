-- Limits of queues, with what they have let through and when they are to be looked at again.
CREATE TABLE queue_limit (
    org_id BLOB NOT NULL,
    queue TEXT NOT NULL,
    spec TEXT NOT NULL,
    paid_until INTEGER NOT NULL DEFAULT 0,
    opens_at INTEGER,
    PRIMARY KEY (org_id, queue)
) STRICT, WITHOUT ROWID;
