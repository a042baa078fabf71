-- A predefined agent is made by its user and named by a slug. Nothing was ever kept in the table before.
DROP TABLE agent_definition;

CREATE TABLE agent_definition (
    org_id UUID NOT NULL,
    id UUID NOT NULL,
    slug TEXT COLLATE "C" NOT NULL,
    spec TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, slug)
);
