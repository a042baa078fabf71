-- A schedule is named by its user, and found by its next tick. Nothing was ever kept in the table before.
DROP TABLE schedule;

CREATE TABLE schedule (
    org_id UUID NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    spec TEXT NOT NULL,
    next_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id)
);

CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
