//! The contract as tests: one suite for every backend.
