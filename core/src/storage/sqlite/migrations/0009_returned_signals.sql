-- Signals that an op had consumed and then gave back. A fork that was made in between has what was consumed then.
CREATE TABLE signal_return (
    key INTEGER NOT NULL,               -- of the signal
    returned_commit INTEGER NOT NULL,
    segment INTEGER NOT NULL,           -- of the op
    sequence INTEGER NOT NULL,
    consumed_commit INTEGER NOT NULL,
    PRIMARY KEY (key, returned_commit)
) STRICT, WITHOUT ROWID;
