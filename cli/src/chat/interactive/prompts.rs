//! The prompts of MCP servers in the chat: a line begins one, and its server's answer is sent.

use super::TerminalChat;
use crate::Result;
use crate::chat::local_agents::LocalAgents;
use crate::chat::mcp_prompts::{PromptLine, PromptNews};
use flovyn_toolkit::react::Delivery;

impl TerminalChat<'_> {
    /// Begins the prompt that a line names; whether it names one.
    pub(super) fn begin_prompt(&mut self, line: &str) -> bool {
        let Some(toolkit) = self.local_agents.as_ref().and_then(LocalAgents::toolkit) else { return false };
        match self.prompts.begin(line, toolkit.mcp_servers()) {
            PromptLine::Begun => true,
            PromptLine::Refused(why) => {
                self.view.show_hint(&why);
                true
            }
            PromptLine::Other => false,
        }
    }

    /// Takes what servers have answered.
    pub(super) async fn on_prompt_news(&mut self, news: PromptNews, width: usize) -> Result {
        let (text, others) = match news {
            PromptNews::Listed(problems) => {
                self.editor.set_prompts(self.prompts.candidates());
                // A server that cannot be used was told of with its tools.
                problems.iter().for_each(|problem| tracing::debug!("{problem}"));
                return Ok(());
            }
            PromptNews::Filled(Ok((text, others))) if text.is_empty() && others.is_empty() => {
                self.view.show_hint("the server made nothing of this prompt");
                return Ok(());
            }
            PromptNews::Filled(Ok(filled)) => filled,
            PromptNews::Filled(Err(error)) => {
                self.view.show_note(error.message(), width);
                return Ok(());
            }
        };
        let view = &mut self.view;
        match self.hooks.prompt(&text, &mut |line| view.show_note(line, width)).await {
            Ok(text) => self.send_message(&text, others, Delivery::NextStep).await,
            Err(why) => {
                self.view.show_note(&why, width);
                Ok(())
            }
        }
    }
}
