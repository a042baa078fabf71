//! The in-process backend: nothing is kept. Also the reference model of the contract.
