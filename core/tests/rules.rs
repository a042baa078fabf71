//! One test for each rule of the engine: what it promises, on every backend.
