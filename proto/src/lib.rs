//! The wire of Flovyn: generated messages, clients and servers, and nothing else.
//!
//! `flovyn/*/*.proto` say what each message means. The features `client` and `server` add the stubs, `v1` the
//! first protocol.

#![allow(missing_docs)]
// The generated messages of a oneof are as large as what they hold.
#![allow(clippy::large_enum_variant)]

/// The first protocol, of workers that are in the field: a call per step.
#[cfg(feature = "v1")]
pub mod v1 {
    tonic::include_proto!("flovyn.v1");

    /// The compiled descriptors, for gRPC reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/v1.bin"));
}

/// The engine's own protocol: the storage contract, batched and chunked.
pub mod v2 {
    tonic::include_proto!("flovyn.v2");
}

/// The compiled descriptors of [`v2`], for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/v2.bin"));

/// The largest message either side accepts: larger things are streamed in parts.
pub const MAX_MESSAGE: usize = 4 << 20;

/// The largest part of a streamed payload.
pub const CHUNK: usize = 64 << 10;
