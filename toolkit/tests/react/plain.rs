//! An agent that is a function, for families with agents that are led by models.

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::AgentContext;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error, Result};

/// Says what it was given, and fails where that is `fail`.
#[derive(Clone)]
pub(crate) struct Plain;

#[async_trait]
impl AgentDefinition for Plain {
    type State = ();
    type Input = String;
    type Output = String;

    fn kind(&self) -> &str {
        "plain"
    }

    async fn execute(&self, ctx: &dyn AgentContext, word: String) -> Result<String> {
        match word.as_str() {
            "fail" => Err(Error::new(Code::NonRetryable, "no such word")),
            _ => {
                let heard = ctx.messages().await?.iter().filter(|entry| entry.new.entry_type == "message").count();
                let heard = if heard == 0 { String::new() } else { format!(" after {heard} messages") };
                ctx.append_entry("assistant", &format!("I am plain: {word}"))?;
                Ok(format!("plain said {word}{heard}"))
            }
        }
    }
}
