//! One module per kind of command.

mod approvals;
mod audit;
mod backup;
mod entries;
mod keys;
mod list;
pub(crate) mod machines;
mod orgs;
mod queues;
mod schedules;
mod serve;
mod show;
mod steer;
mod tree;
mod watch;
pub(crate) mod worker;

pub(crate) use serve::{StopSignal, Termination, stop_signal};

use crate::Result;
use crate::args::{Command, Runs};
use crate::print::Output;

/// Does what was asked.
pub(crate) async fn dispatch(command: Command, out: &mut Output) -> Result {
    let command = match command {
        Command::Worker(args) => return worker::worker(args, out).await,
        Command::Daemon(args) => return crate::daemon::daemon(args, out).await,
        Command::Machines(command) => return machines::machines(command, out).await,
        Command::Chat(args) => return crate::chat::chat(*args, out).await,
        Command::Dev(args) => return serve::dev(args, out).await,
        Command::Server(args) => return serve::server(args, out).await,
        Command::Keys(command) => return keys::keys(command, out).await,
        Command::Orgs(command) => return orgs::orgs(command, out).await,
        Command::Audit(args) => return audit::audit(args, out).await,
        Command::Migrate(args) => return keys::migrate(args, out).await,
        Command::Backup(args) => return backup::backup(args, out).await,
        Command::Queues(command) => return queues::queues(command, out).await,
        Command::Schedules(command) => return schedules::schedules(command, out).await,
        Command::Runs(command) => command,
    };
    match command {
        Runs::List(args) => list::list(args, out).await,
        Runs::Start(args) => steer::start(args, out).await,
        Runs::Show(args) => show::show(args, out).await,
        Runs::Entries(args) => entries::entries(args, out).await,
        Runs::Watch(args) => watch::watch(args, out).await,
        Runs::Signal(args) => steer::signal(args, out).await,
        Runs::Approve(args) => approvals::approve(args, out).await,
        Runs::Deny(args) => approvals::deny(args, out).await,
        Runs::Cancel(args) => steer::cancel(args, out).await,
        Runs::Delete(args) => steer::delete(args, out).await,
        Runs::Resume(args) => steer::resume(args, false, out).await,
        Runs::Retry(args) => steer::resume(args, true, out).await,
        Runs::Fork(args) => steer::fork(args, out).await,
        Runs::Resolve(args) => steer::resolve(args, out).await,
        Runs::Decide(args) => steer::decide(args, out).await,
    }
}
