-- Computers of people that were let in by name. The worker of a machine serves the queue `machine/NAME`.
CREATE TABLE machine (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,                 -- whose it is, as who approved it says
    key_id UUID NOT NULL,                -- with which it works
    offers TEXT NOT NULL,                -- JSON
    created_at BIGINT NOT NULL,
    seen_at BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX machine_name ON machine (org_id, name) WHERE revoked_at IS NULL;

-- Machines that ask to be let in. Until somebody approves it, a row is of no org, and seen by no session of one.
CREATE TABLE machine_pairing (
    secret BYTEA NOT NULL PRIMARY KEY,   -- hash of what the machine has
    code TEXT NOT NULL UNIQUE,           -- for who approves it
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    org_id UUID,
    owner TEXT,
    actor TEXT,                          -- who has approved it
    not_after BIGINT                     -- when the key ends at the latest
);

DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['machine', 'machine_pairing'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY of_org ON %I USING (current_setting(''flovyn.org'', true) = ''*'' '
            'OR org_id::text = current_setting(''flovyn.org'', true))',
            name
        );
    END LOOP;
END
$$;
