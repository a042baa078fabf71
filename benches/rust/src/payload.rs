//! The agent of W4: one step with a large incompressible output, then a wait, so that a later process reads it back.

use crate::{Failure, directory};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::journal::Outcome;
use flovyn_core::payload::ByteSource;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A file read piece by piece.
struct FileSource(File, u64);

impl ByteSource for FileSource {
    fn size(&self) -> u64 {
        self.1
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(into, offset)
    }
}

/// Random bytes; for `text` as hexadecimal digits between quotes.
pub(crate) fn make(mebibytes: usize, form: &str) -> Result<Payload, Failure> {
    let size = mebibytes << 20;
    let mut bytes = vec![0u8; size];
    std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(match form {
        "text" => {
            bytes.iter_mut().for_each(|byte| *byte = b"0123456789abcdef"[usize::from(*byte & 15)]);
            bytes[0] = b'"';
            bytes[size - 1] = b'"';
            Payload::json(bytes)
        }
        "file" => {
            let path = directory().join("output.bin");
            std::fs::write(&path, &bytes)?;
            Payload::blob(Arc::new(FileSource(File::open(path)?, size as u64)))
        }
        _ => Payload::raw(bytes),
    })
}

/// The agent; `output` is what its step returns, none where the step must not run again.
pub(crate) struct Large {
    /// What the step returns.
    pub output: Option<Payload>,
    /// How long the step took.
    pub step: Arc<Mutex<Option<Duration>>>,
}

#[async_trait]
impl AgentDefinition for Large {
    type State = ();
    type Input = ();
    type Output = u64;
    fn kind(&self) -> &str {
        "payload"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> flovyn_core::Result<u64> {
        let output = self
            .output
            .clone()
            .ok_or_else(|| flovyn_core::Error::new(flovyn_core::error::Code::InDoubt, "the step ran again"));
        let start = Instant::now();
        let outcome = ctx.run_raw("large", Box::pin(async move { output }))?.await?;
        if let Ok(mut step) = self.step.lock() {
            *step = Some(start.elapsed());
        }
        let _: serde_json::Value = ctx.wait_for_signal("again")?.await?;
        Ok(match outcome {
            Outcome::Value(value) => value.size(),
            _ => 0,
        })
    }
}
