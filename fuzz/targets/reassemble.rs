//! Any bytes as the parts of a commit, each with its length in front.
#![no_main]

use flovyn_core::testing::hostile::reassemble;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    reassemble(bytes);
});
