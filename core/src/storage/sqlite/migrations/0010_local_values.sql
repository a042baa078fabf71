-- Values of runs whose rows are in another store: those that were started with persistence "local". The number of such a run is
-- below zero, so that it is none of a run of this file where it refers to a payload.
CREATE TABLE local_run (
    number INTEGER PRIMARY KEY CHECK (number < 0),
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    ended_at INTEGER,                   -- when it ended, as far as this file knows
    UNIQUE (org_id, id)
) STRICT;
CREATE TABLE local_value (
    run INTEGER NOT NULL REFERENCES local_run (number) ON DELETE CASCADE,
    hash BLOB NOT NULL,                 -- of the bytes of the value
    value ANY NOT NULL,
    PRIMARY KEY (run, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX local_value_hash ON local_value (hash);
