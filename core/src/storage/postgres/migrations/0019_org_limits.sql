-- What the callers of an organization may ask for together, as JSON; nothing where it is NULL.
ALTER TABLE organization ADD COLUMN limits TEXT;
