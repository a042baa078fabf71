-- What workers have said that they can run, whose polls do not say it.
CREATE TABLE enrolled_worker (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    serves TEXT NOT NULL,               -- {agents, tasks}: kinds
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;
