-- What workers have said that they can run, whose polls do not say it.
CREATE TABLE enrolled_worker (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    serves TEXT NOT NULL,               -- {agents, tasks}: kinds
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id)
);
