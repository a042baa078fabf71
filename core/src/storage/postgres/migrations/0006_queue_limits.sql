-- Limits of queues, with what they have let through and when they are to be looked at again.
CREATE TABLE queue_limit (
    org_id UUID NOT NULL,
    queue TEXT COLLATE "C" NOT NULL,
    spec TEXT NOT NULL,
    paid_until BIGINT NOT NULL DEFAULT 0,
    opens_at BIGINT,
    PRIMARY KEY (org_id, queue)
);
