//! The storage contract of Flovyn, served.
//!
//! [`serve`] opens the listeners over a backend; the server never runs agent code. `grpc/` speaks `flovyn.v2`; `http/`
//! listens for `rest/` and `sse/`; all of them call `service/`, which has what a call means; `metrics/` counts; `nats/` tells
//! other servers; `otlp/` sends traces; `access.rs` authenticates callers; `dev.rs` is the server of one developer,
//! `replica.rs` one of an installation.

mod access;
mod addresses;
pub mod catalog;
mod certificate;
mod config;
mod dev;
mod disk;
mod extensions;
mod faults;
mod grpc;
mod http;
mod limits;
mod listen;
mod metrics;
mod nats;
mod oidc;
mod options;
mod org_limiter;
mod otlp;
mod policy;
mod refusal_log;
mod replica;
mod request_id;
mod rest;
mod service;
mod serving;
mod session;
mod shutdown;
mod sse;
mod startup_log;
mod throttle;

pub use access::{Access, Identity};
pub use certificate::Certificate;
pub use config::{Config, LogFormat};
pub use dev::{Dev, DevOptions, dev};
pub use extensions::Extensions;
pub use limits::Limits;
pub use oidc::{OidcSettings, Secret};
pub use options::{ServeOptions, ServerConfig};
pub use replica::Replica;
pub use serving::{Serving, serve, serve_connections, serve_with};

/// What a further protocol over gRPC is made of, and what it calls: for crates that [`Extensions`] take.
pub mod protocol {
    pub use crate::extensions::Protocol;
    pub use crate::grpc::{ResponseStream, identity, org, to_status};
    pub use crate::limits::Rate;
    pub use crate::policy::Need;
    pub use crate::service::{DEFINITION, IDLE, Service, Upload, check_size, checkpoint_id};
}
