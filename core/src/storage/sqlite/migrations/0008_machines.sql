-- Computers of people that were let in by name. The worker of a machine serves the queue `machine/NAME`.
CREATE TABLE machine (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,                -- whose it is, as who approved it says
    key_id BLOB NOT NULL,               -- with which it works
    offers TEXT NOT NULL,               -- JSON
    created_at INTEGER NOT NULL,
    seen_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX machine_name ON machine (org_id, name) WHERE revoked_at IS NULL;

-- Machines that ask to be let in. Until somebody approves it, a row is of no org.
CREATE TABLE machine_pairing (
    secret BLOB NOT NULL PRIMARY KEY,   -- hash of what the machine has
    code TEXT NOT NULL UNIQUE,          -- for who approves it
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    org_id BLOB,
    owner TEXT,
    actor TEXT,                         -- who has approved it
    not_after INTEGER                   -- when the key ends at the latest
) STRICT;
