//! Messages of the wire as nobody sends them: well-formed with any content, and bytes that are none (feature `remote`).
//!
//! [`Shapes`] makes messages by their descriptors, so that they get past the first check. The bodies below take any bytes and
//! panic where the wire breaks its word; the fuzzers under `fuzz/` and `core/tests/hostile.rs` call the same ones.

use crate::model::{
    AttemptReport, AttemptResult, Batch, Checkpoint, Chunk, CommitAnswer, Entry, Event, Fact, Failure, Label,
    NewCheckpoint, NewEntry, NewOp, NewTask, OnceResult, RecordedOp, Signal, StartLimits, TaskOptions, Wait,
};
use crate::payload::{Payload, RowOf};
use crate::storage::conformance::random::Random;
use crate::wire::{CHUNK, DESCRIPTORS, Parts, attach, parts, v2};
use bytes::Bytes;
use prost::Message;
use prost_types::field_descriptor_proto::{Label as Times, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Messages deeper inside each other are left out.
const DEPTH: u32 = 6;
/// What is put together from parts may have so many bytes.
const LIMIT: u64 = 1 << 20;

const WORDS: [&str; 20] = [
    "",
    "default",
    "agent",
    "graceful",
    "hard",
    "now",
    "next_step",
    "COMPLETED",
    "FAILED",
    "resumed",
    "token",
    "fork",
    "null",
    "{}",
    "[1,2]",
    "{\"a\":{\"b\":[]}}",
    "018f0000-0000-7000-8000-000000000001",
    "a\0b",
    "\u{1f9a6}",
    "{",
];
const NUMBERS: [u64; 12] =
    [0, 1, 2, 3, 7, 255, 65_536, u32::MAX as u64, i32::MAX as u64, i64::MAX as u64, 1 << 63, u64::MAX];

/// A method of a service.
#[derive(Debug, Clone)]
pub struct Method {
    /// `/flovyn.v2.Service/Method`.
    pub path: String,
    /// The message it takes.
    pub input: String,
    /// Whether it takes a stream of them.
    pub streams: bool,
}

/// The shapes of all messages.
#[derive(Debug)]
pub struct Shapes {
    messages: BTreeMap<String, DescriptorProto>,
    methods: Vec<Method>,
}

impl Default for Shapes {
    fn default() -> Self {
        Self::new()
    }
}

impl Shapes {
    /// Reads the compiled descriptors.
    pub fn new() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default();
        let (mut messages, mut methods) = (BTreeMap::new(), Vec::new());
        for file in set.file {
            let package = file.package().to_owned();
            for message in file.message_type {
                messages.insert(format!(".{package}.{}", message.name()), message);
            }
            for service in file.service {
                methods.extend(service.method.iter().map(|method| Method {
                    path: format!("/{package}.{}/{}", service.name(), method.name()),
                    input: method.input_type().to_owned(),
                    streams: method.client_streaming(),
                }));
            }
        }
        Self { messages, methods }
    }

    /// The names of all messages, with a dot in front.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.messages.keys().map(String::as_str)
    }

    /// Every method of every service.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// A message of a name with any content, encoded.
    pub fn make(&self, name: &str, random: &mut Random) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.message(name, random, 0, &mut bytes);
        bytes
    }

    fn message(&self, name: &str, random: &mut Random, depth: u32, into: &mut Vec<u8>) {
        let Some(shape) = self.messages.get(name) else { return };
        // Of a oneof one is set: more than one is what nobody sends.
        let chosen: Vec<usize> = shape.oneof_decl.iter().map(|_| random.below(64)).collect();
        let mut places = vec![0; shape.oneof_decl.len()];
        for field in &shape.field {
            let real = field.oneof_index.filter(|_| !field.proto3_optional());
            if let Some(at) = real {
                let of = shape.field.iter().filter(|other| other.oneof_index == Some(at)).count();
                let mine = places[at as usize];
                places[at as usize] += 1;
                if chosen[at as usize] % of.max(1) != mine {
                    continue;
                }
            }
            let times = match field.label() {
                Times::Repeated => random.below(4),
                _ => usize::from(real.is_some() || random.percent(80)),
            };
            for _ in 0..times {
                self.field(field, random, depth, into);
            }
        }
    }

    fn field(&self, field: &FieldDescriptorProto, random: &mut Random, depth: u32, into: &mut Vec<u8>) {
        let number = field.number() as u64;
        let mut key = |wire: u64| varint(number << 3 | wire, into);
        match field.r#type() {
            Type::String => {
                key(2);
                let word = random.pick(&WORDS).copied().unwrap_or_default();
                delimited(word.as_bytes(), into);
            }
            Type::Bytes => {
                key(2);
                let length = [16, 16, 32, 32, 0, 15, 200][random.below(7)];
                // So few that ids meet again.
                let byte = random.below(8) as u8;
                delimited(&vec![byte; length], into);
            }
            Type::Message if depth < DEPTH => {
                key(2);
                let mut inner = Vec::new();
                // An entry of a map is no message of its own here; it stays empty.
                self.message(field.type_name(), random, depth + 1, &mut inner);
                delimited(&inner, into);
            }
            Type::Message | Type::Group => {}
            Type::Double | Type::Fixed64 | Type::Sfixed64 => {
                key(1);
                into.extend(number_of(random).to_le_bytes());
            }
            Type::Float | Type::Fixed32 | Type::Sfixed32 => {
                key(5);
                into.extend((number_of(random) as u32).to_le_bytes());
            }
            Type::Enum => {
                key(0);
                varint(random.below(6) as u64, into);
            }
            Type::Bool => {
                key(0);
                varint(random.below(2) as u64, into);
            }
            _ => {
                key(0);
                varint(number_of(random), into);
            }
        }
    }
}

fn number_of(random: &mut Random) -> u64 {
    match random.percent(70) {
        true => random.below(5) as u64,
        false => random.pick(&NUMBERS).copied().unwrap_or_default(),
    }
}

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn delimited(bytes: &[u8], into: &mut Vec<u8>) {
    varint(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

/// Bytes with some of them changed, left out or doubled.
pub fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.remove(at)),
            _ => bytes.insert(at, random.below(256) as u8),
        }
    }
}

/// What bytes decode to is either refused or stays the same over the wire and back; whether it was a model's.
fn stays<W, M>(bytes: &[u8]) -> bool
where
    W: Message + Default + PartialEq + Debug + for<'a> From<&'a M>,
    M: TryFrom<W>,
    <M as TryFrom<W>>::Error: Debug,
{
    let Some(model) = W::decode(bytes).ok().and_then(|wire| M::try_from(wire).ok()) else { return false };
    let sent = W::from(&model);
    let came = W::decode(&sent.encode_to_vec()[..]).expect("what is encoded is decoded");
    let again = M::try_from(came).expect("what is written is read");
    let again = W::from(&again);
    // What is no number equals nothing, not even itself, but its bytes do.
    assert!(again == sent || again.encode_to_vec() == sent.encode_to_vec(), "{again:?} was written as {sent:?}");
    true
}

/// Reads bytes as a message of a name; whether they stand for something.
///
/// Panics where what was read is written as something else.
pub fn read(name: &str, bytes: &[u8]) -> bool {
    match name.rsplit('.').next().unwrap_or_default() {
        "Attempt" => stays::<v2::Attempt, AttemptReport>(bytes),
        "AttemptResult" => stays::<v2::AttemptResult, AttemptResult>(bytes),
        "Batch" => stays::<v2::Batch, Batch>(bytes),
        "Checkpoint" => stays::<v2::Checkpoint, Checkpoint>(bytes),
        "Chunk" => stays::<v2::Chunk, Chunk>(bytes),
        "CommitAnswer" => stays::<v2::CommitAnswer, CommitAnswer>(bytes),
        "Entry" => stays::<v2::Entry, Entry>(bytes),
        "Event" => stays::<v2::Event, Event>(bytes),
        "Fact" => stays::<v2::Fact, Fact>(bytes),
        "Failure" => stays::<v2::Failure, Failure>(bytes),
        "Label" => stays::<v2::Label, Label>(bytes),
        "Limits" => stays::<v2::Limits, StartLimits>(bytes),
        "NewCheckpoint" => stays::<v2::NewCheckpoint, NewCheckpoint>(bytes),
        "NewEntry" => stays::<v2::NewEntry, NewEntry>(bytes),
        "NewOp" => stays::<v2::NewOp, NewOp>(bytes),
        "NewTask" => stays::<v2::NewTask, NewTask>(bytes),
        "OnceResult" => stays::<v2::OnceResult, OnceResult>(bytes),
        "Payload" => stays::<v2::Payload, Payload>(bytes),
        "RecordedOp" => stays::<v2::RecordedOp, RecordedOp>(bytes),
        "RowOf" => stays::<v2::RowOf, RowOf>(bytes),
        "Signal" => stays::<v2::Signal, Signal>(bytes),
        "TaskOptions" => stays::<v2::TaskOptions, TaskOptions>(bytes),
        "Wait" => stays::<v2::Wait, Wait>(bytes),
        _ => false,
    }
}

/// Puts the parts of a commit together that bytes name, each with its length in front; whether a commit came of it.
///
/// Panics where more is held than was allowed.
pub fn reassemble(mut bytes: &[u8]) -> bool {
    let mut whole = attach::Commit::default();
    let mut taken = 0;
    while let Ok(part) = v2::CommitPart::decode_length_delimited(&mut bytes) {
        let size = part.encoded_len() as u64;
        match whole.push(part, LIMIT) {
            Ok(()) => taken += size,
            Err(_) => return false,
        }
        // Of each part its key and its length are beside what counts.
        assert!(taken <= LIMIT * 2, "{taken} bytes were taken of {LIMIT}");
    }
    whole.finish().is_ok()
}

/// Splits a payload made of bytes into parts, does to them what the first bytes say, and puts them together again.
///
/// Panics where what comes out is not what went in, or where damage goes unnoticed.
pub fn chunks(bytes: &[u8]) {
    let Some((&what, content)) = bytes.split_first() else { return };
    // Long enough for several chunks, whatever was given.
    let content: Bytes =
        content.iter().copied().cycle().take(content.len() * (usize::from(what >> 4) * 700 + 1)).collect();
    let mut sent: Vec<_> = parts(crate::payload::Encoding::Raw, content.clone()).filter_map(|part| part.part).collect();
    let last = sent.len() - 1;
    let harmless = match (what & 7, &mut sent[last]) {
        (1, v2::payload_part::Part::Chunk(chunk)) if !chunk.is_empty() => {
            *chunk = chunk.slice(1..);
            false
        }
        (2, v2::payload_part::Part::Chunk(chunk)) => {
            let mut changed = chunk.to_vec();
            changed[0] ^= 1;
            *chunk = changed.into();
            false
        }
        (3, v2::payload_part::Part::Chunk(chunk)) => {
            let more = chunk.clone();
            sent.push(v2::payload_part::Part::Chunk(more));
            false
        }
        (4, _) if last > 1 => {
            sent.remove(1);
            false
        }
        _ => true,
    };
    let mut sent = sent.into_iter();
    let Some(v2::payload_part::Part::Header(header)) = sent.next() else { return };
    let put = || {
        let mut whole = Parts::begin(&header, u64::MAX)?;
        for part in sent {
            if let v2::payload_part::Part::Chunk(chunk) = part {
                assert!(chunk.len() <= CHUNK, "a chunk has at most {CHUNK} bytes");
                whole.push(&chunk)?;
            }
        }
        whole.finish()
    };
    match put() {
        Ok(payload) => assert!(harmless && payload == Payload::raw(content), "damage {} went unnoticed", what & 7),
        Err(error) => assert!(!harmless, "{error}"),
    }
}
