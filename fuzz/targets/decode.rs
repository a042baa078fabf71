//! Any bytes as any message: refused, or the same over the wire and back. The first byte chooses the message.
#![no_main]

use flovyn_core::testing::hostile::{Shapes, read};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| Shapes::new().names().map(str::to_owned).collect());

fuzz_target!(|bytes: &[u8]| {
    if let Some((which, message)) = bytes.split_first() {
        read(&NAMES[usize::from(*which) % NAMES.len()], message);
    }
});
