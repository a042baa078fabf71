//! The one-file backend: SQLite in WAL mode behind one writer thread.
