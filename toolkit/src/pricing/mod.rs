//! What model calls cost.
