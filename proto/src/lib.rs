//! The wire of Flovyn: generated messages, clients and servers, and nothing else.
//!
//! `flovyn/*/*.proto` say what each message means. The features `client` and `server` add the stubs.

#![allow(missing_docs)]
// The generated messages of a oneof are as large as what they hold.
#![allow(clippy::large_enum_variant)]

/// The first protocol, of workers that are in the field: a call per step.
pub mod v1 {
    tonic::include_proto!("flovyn.v1");
}

/// The engine's own protocol: the storage contract, batched and chunked.
pub mod v2 {
    tonic::include_proto!("flovyn.v2");
}

/// The compiled descriptors, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flovyn.bin"));

/// The largest message either side accepts: larger things are streamed in parts.
pub const MAX_MESSAGE: usize = 4 << 20;

/// The largest part of a streamed payload.
pub const CHUNK: usize = 64 << 10;
