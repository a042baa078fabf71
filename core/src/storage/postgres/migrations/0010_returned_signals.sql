-- Signals that an op had consumed and then gave back. A fork that was made in between has what was consumed then.
CREATE TABLE signal_return (
    org_id UUID NOT NULL,
    run BIGINT NOT NULL,
    number BIGINT NOT NULL,              -- of the signal
    returned_commit BIGINT NOT NULL,
    segment INTEGER NOT NULL,            -- of the op
    sequence INTEGER NOT NULL,
    consumed_commit BIGINT NOT NULL,
    PRIMARY KEY (org_id, run, number, returned_commit),
    FOREIGN KEY (org_id, run, number) REFERENCES agent_signal(org_id, run, number)
);
ALTER TABLE signal_return ENABLE ROW LEVEL SECURITY;
ALTER TABLE signal_return FORCE ROW LEVEL SECURITY;
CREATE POLICY of_org ON signal_return USING (current_setting('flovyn.org', true) = '*'
    OR org_id::text = current_setting('flovyn.org', true));
