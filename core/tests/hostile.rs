//! The wire against messages that nobody sends on purpose: the bodies of the fuzzers, a bounded number of times.
//!
//! `SCALE` multiplies the number of cases; a failure names its seed, and `SEED` runs it alone.

use flovyn_core::storage::conformance::random::Random;
use flovyn_core::testing::hostile::{Shapes, chunks, damage, read, reassemble};
use flovyn_core::wire::{attach, v2};
use prost::Message;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Calls a body with so many seeds.
fn each_seed(cases: u64, mut body: impl FnMut(&mut Random)) {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..cases * number("SCALE").unwrap_or(1),
    };
    for seed in seeds {
        if catch_unwind(AssertUnwindSafe(|| body(&mut Random(seed)))).is_err() {
            panic!("SEED={seed} fails");
        }
    }
}

#[test]
fn every_message_is_refused_or_stays_the_same() {
    let shapes = Shapes::new();
    let names: Vec<_> = shapes.names().map(str::to_owned).collect();
    let mut stood: BTreeMap<&str, u64> = BTreeMap::new();
    each_seed(1_200, |random| {
        for name in &names {
            let mut bytes = shapes.make(name, random);
            *stood.entry(name).or_default() += u64::from(read(name, &bytes));
            damage(&mut bytes, random);
            read(name, &bytes);
        }
    });
    // Messages that never get past the first check would prove nothing.
    let alive: Vec<_> = stood.iter().filter(|(_, times)| **times > 0).map(|(name, _)| *name).collect();
    assert!(number("SEED").is_some() || alive.len() >= 20, "only {alive:?} were ever read");
}

#[test]
fn a_commit_is_put_together_or_refused() {
    let shapes = Shapes::new();
    let mut whole = 0;
    each_seed(400, |random| {
        let made = shapes.make(".flovyn.v2.CommitRequest", random);
        let request = v2::CommitRequest::decode(&made[..]).expect("what is well-formed is decoded");
        let mut bytes = Vec::new();
        for part in attach::commit_parts(request) {
            part.encode_length_delimited(&mut bytes).expect("a vector takes it");
        }
        whole += u64::from(reassemble(&bytes));
        for _ in 0..random.below(3) {
            let more = shapes.make(".flovyn.v2.CommitPart", random);
            let at = random.below(bytes.len() + 1);
            bytes.splice(at..at, more);
        }
        damage(&mut bytes, random);
        reassemble(&bytes);
    });
    assert!(whole > 0, "no commit was whole");
}

#[test]
fn chunks_arrive_as_they_left_or_not_at_all() {
    each_seed(300, |random| {
        let length = random.below(400);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        chunks(&bytes);
    });
}
