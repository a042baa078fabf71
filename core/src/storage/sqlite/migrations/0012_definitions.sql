-- A predefined agent is made by its user and named by a slug. Nothing was ever kept in the table before.
DROP TABLE agent_definition;
CREATE TABLE agent_definition (
    org_id BLOB NOT NULL,
    id BLOB NOT NULL,
    slug TEXT NOT NULL,
    spec TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX agent_definition_slug ON agent_definition (org_id, slug);
