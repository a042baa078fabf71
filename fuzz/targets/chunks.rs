//! A payload split into chunks, damaged as the first byte says, and put together again.
#![no_main]

use flovyn_core::testing::hostile::chunks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| chunks(bytes));
