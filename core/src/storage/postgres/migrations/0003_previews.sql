-- Who reads a run's previews in another process than its worker's, and what was written for those readers.
DROP TABLE watch;

CREATE TABLE watch (
    org_id UUID NOT NULL,
    execution UUID NOT NULL,
    reader UUID NOT NULL,                -- a process
    served BOOLEAN NOT NULL,             -- it has got what there was when it came
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, execution, reader)
);
CREATE INDEX watch_expires ON watch (expires_at);

CREATE TABLE preview (
    org_id UUID NOT NULL,
    execution UUID NOT NULL,
    number BIGINT NOT NULL,              -- the place of the last preview in the row
    chunk BIGINT NOT NULL,
    segment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,           -- of the op; -1 for what the agent itself made
    data TEXT NOT NULL,
    PRIMARY KEY (org_id, execution, number, chunk)
);
