//! What a chat waits for where it may not be there: the tools of this process, a command of the user, the session.

use crate::Result;
use crate::chat::feed::ChatEvent;
use crate::chat::live_session::LiveSession;
use crate::chat::local_agents::LocalAgents;
use crate::chat::shell::{Ran, Shell};

/// Resolves when the tools of this process have been opened; never where they were open before, or where there are none.
pub(super) async fn wait_open(local_agents: &mut Option<LocalAgents>) -> Result {
    match local_agents {
        Some(local_agents) => local_agents.wait_open().await.map(drop),
        None => std::future::pending().await,
    }
}

/// Resolves when the command of the user has ended; never where none runs.
pub(super) async fn shell_end(shell: &mut Option<Shell>) -> Ran {
    match shell {
        Some(shell) => shell.ended().await,
        None => std::future::pending().await,
    }
}

/// The next event of the session; never resolves where there is no session yet.
pub(super) async fn next(live_session: &mut Option<LiveSession>) -> Result<Option<ChatEvent>> {
    match live_session {
        Some(live_session) => live_session.feed.next().await,
        None => std::future::pending().await,
    }
}
