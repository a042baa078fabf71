-- A key has scopes, of which a role is a set; an organization is called by its name.
ALTER TABLE api_key RENAME COLUMN role TO scopes;

CREATE UNIQUE INDEX organization_name ON organization (name);
