-- Seals each row of the audit together with those before it in its org.
ALTER TABLE audit ADD COLUMN seal BYTEA;
