//! A prompt answered without a conversation: text to standard output, tools and cost to standard error.

use super::approving::{Standing, answer};
use super::cost::Tally;
use super::feed::{Happening, UNSERVED, text_of};
use super::inquiry::Inquiry;
use super::screen::style::clean;
use super::serving::Serving;
use super::talk::Talk;
use super::tools::{Named, troubles};
use crate::Result;
use crate::print::{Output, short, took};
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::message::{Message, ToolResult};
use flovyn_toolkit::react::InputRequest;
use flovyn_toolkit::tools::approval::ApprovalRequest;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// What the model is told where nobody can be asked.
const NOBODY: &str = "Nobody can be asked in this session: it allows looking alone.";

/// How long MCP servers may take to start before it is said that they do.
const SOON: Duration = Duration::from_secs(3);

/// One answer in the making.
struct OneShot<'a> {
    out: &'a mut Output,
    standing: Standing,
    tally: Tally,
    /// Text of the answer that was shown, and whether a line of it is open.
    shown: String,
    /// The user's words were heard: what comes is the answer.
    heard: bool,
    /// The last answer whole.
    last: Option<Message>,
}

/// Waits for the tools of this process, and tells what is wrong with MCP servers.
pub async fn opened(serving: &mut Option<Serving>) -> Result {
    let Some(serving) = serving else { return Ok(()) };
    match timeout(SOON, serving.opened()).await {
        Ok(opened) => drop(opened?),
        Err(_) => {
            eprintln!("The MCP servers are starting…");
            serving.opened().await?;
        }
    }
    let troubles = serving.kit().map(|kit| troubles(kit.tools(), kit.problems())).unwrap_or_default();
    troubles.iter().for_each(|told| eprintln!("{told}"));
    Ok(())
}

/// Follows a session until it waits for the user again, and tells what it says. `heard`: the turn has begun already.
pub async fn answered(talk: &mut Talk, heard: bool, standing: Standing, out: &mut Output) -> Result {
    let mut shot = OneShot { out, standing, tally: Tally::default(), shown: String::new(), heard, last: None };
    for request in std::mem::take(&mut talk.asked) {
        shot.asked(talk, &request).await?;
    }
    for request in std::mem::take(&mut talk.inquired) {
        inquired(talk, request).await?;
    }
    loop {
        let Some(happening) = talk.feed.next().await? else { break };
        match happening {
            Happening::Text(text) => shot.text(&text)?,
            Happening::Void => shot.void()?,
            Happening::Heard(_) => shot.heard = true,
            Happening::Answered(message) => shot.whole(message)?,
            Happening::Ended { result, took: time } => shot.tool(&result, time.map(took)),
            Happening::Asked(request) => shot.asked(talk, &request).await?,
            Happening::Inquired(request) => inquired(talk, request).await?,
            Happening::Refused(refused) => eprintln!("{}", refused.message),
            Happening::Paid(call) => shot.tally.add(call.usage.as_ref()),
            Happening::Notice(notice) => eprintln!("{notice}"),
            Happening::Unserved => eprintln!("{UNSERVED}"),
            Happening::Idle if shot.heard => break,
            Happening::Over(Some(why)) => return Err(Error::new(Code::AgentFailed, why).into()),
            Happening::Over(None) => break,
            Happening::Idle
            | Happening::Thinking(_)
            | Happening::Started(_)
            | Happening::Output { .. }
            | Happening::Again(_)
            | Happening::Decided(_)
            | Happening::Replied(_) => {}
        }
    }
    shot.end(&talk.session.name())
}

/// Closes what a server asks, for nobody is there to answer.
async fn inquired(talk: &Talk, request: InputRequest) -> Result {
    let (server, tool) = (request.server.clone(), Named::of(&request.name).tool.to_owned());
    for question in request.questions.values() {
        let asked = short(question.message(), 200);
        eprintln!("{server} asks before {tool} goes on: {asked} Nobody can answer here, so it was closed.");
    }
    match Inquiry::new(request).cancel() {
        Some(reply) => talk.reply(&reply).await,
        None => Ok(()),
    }
}

impl OneShot<'_> {
    fn text(&mut self, text: &str) -> Result {
        self.shown.push_str(text);
        match (self.out.is_json(), self.out.is_terminal()) {
            (true, _) => Ok(()),
            (_, true) => self.out.part(&clean(text)),
            (_, false) => self.out.part(text),
        }
    }

    fn void(&mut self) -> Result {
        if !self.shown.is_empty() {
            self.line()?;
            eprintln!("(the answer was cut off and is given again)");
        }
        Ok(())
    }

    /// Ends the answer that is being shown.
    fn line(&mut self) -> Result {
        let open = !self.shown.is_empty() && !self.shown.ends_with('\n');
        self.shown.clear();
        if open && !self.out.is_json() { self.out.line("") } else { Ok(()) }
    }

    fn whole(&mut self, message: Message) -> Result {
        let text = message.text();
        match text.strip_prefix(&self.shown) {
            Some(rest) => self.text(rest)?,
            None => {
                self.void()?;
                self.text(&text)?;
            }
        }
        self.line()?;
        self.last = Some(message);
        Ok(())
    }

    fn tool(&mut self, result: &ToolResult, took: Option<String>) {
        let mark = if result.is_error { "✗" } else { "✓" };
        let took = took.map(|took| format!(" ({took})")).unwrap_or_default();
        eprintln!("{mark} {}{took}: {}", Named::of(&result.name), short(&text_of(result), 100));
    }

    async fn asked(&mut self, talk: &Talk, request: &ApprovalRequest) -> Result {
        let answered = self.standing.answer(request);
        let refused = || {
            eprintln!("{} was not allowed; --yes or --approve allows it", Named::of(&request.name));
            answer(request, false, Some(NOBODY.to_owned()))
        };
        talk.decide(&answered.unwrap_or_else(refused)).await
    }

    fn end(self, session: &str) -> Result {
        let error = self.last.as_ref().and_then(|message| message.assistant.as_ref()?.error.as_ref());
        if let Some(error) = error {
            return Err(Error::new(Code::AgentFailed, format!("the model gave no answer: {}", error.message)).into());
        }
        if self.out.is_json() {
            let text = self.last.map(|message| message.text()).unwrap_or_default();
            return self.out.value(&json!({ "session": session, "text": text, "usage": self.tally.json() }));
        }
        eprintln!("{} · session {session}", self.tally.line());
        Ok(())
    }
}
