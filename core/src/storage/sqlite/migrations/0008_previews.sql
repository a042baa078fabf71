-- Who reads a run's previews in another process than its worker's, and what was written for those readers.
DROP TABLE watch;

CREATE TABLE watch (
    org_id BLOB NOT NULL,
    execution BLOB NOT NULL,
    reader BLOB NOT NULL,               -- a process
    served INTEGER NOT NULL,            -- it has got what there was when it came
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, execution, reader)
) STRICT, WITHOUT ROWID;

CREATE TABLE preview (
    org_id BLOB NOT NULL,
    execution BLOB NOT NULL,
    number INTEGER NOT NULL,            -- the place of the last preview in the row
    chunk INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,          -- of the op; -1 for what the agent itself made
    data TEXT NOT NULL,
    PRIMARY KEY (org_id, execution, number, chunk)
) STRICT, WITHOUT ROWID;
