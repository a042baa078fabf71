//! Runs a command to its end: its own session, both outputs in the order they arrive, a time limit, an end without orphans.
//!
//! One thread per command starts it, reads it and waits for it: bubblewrap ends with the thread that started it.

mod capture;
mod confine;
mod family;
mod group;
mod visible;

pub(crate) use capture::{Capture, Captured};
pub use confine::Availability;
pub(crate) use confine::{Confined, Confinement, program, shell};
pub(crate) use family::{MARK, end_marked};
pub(crate) use group::{ProcessGroup, StderrTail};

use super::fault::Fault;
use super::{StopSignal, Stream, TerminalSink};
use capture::{Decoder, Streaming};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long nothing is looked at while a command is silent.
const TICK: Duration = Duration::from_millis(20);
/// How often the memory of a bounded command is looked at.
const MEASURE: Duration = Duration::from_millis(50);

/// A command with its bounds.
pub(crate) struct Job {
    pub confined: Confined,
    /// Whether a supervisor stands between this process and the command's own; it is not asked to end, it ends last.
    pub supervised: bool,
    /// Names the call; all its processes carry it.
    pub call: String,
    pub timeout: Duration,
    pub grace: Duration,
    pub drain: Duration,
    pub bounds: Option<Bounds>,
    pub terminal: Option<TerminalSink>,
    pub stop: Option<StopSignal>,
    /// Takes the whole output up to a size.
    pub record_to: Option<(File, u64)>,
    /// What the command reads; nothing unless given.
    pub input: Option<File>,
    /// Done where the command did not end by itself.
    pub ended_early: Option<Box<dyn FnOnce() + Send>>,
}

/// Bounds of all processes of a command together.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// In bytes.
    pub memory: u64,
    pub processes: usize,
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Exited,
    TimedOut,
    Stopped,
    TooMuchMemory,
    TooManyProcesses,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub why: Why,
    pub output: Captured,
    pub took: Duration,
    /// Whether a process that it left behind holds its output.
    pub is_held: bool,
}

impl Ended {
    /// The exit code; 128 and the signal's number for a command that a signal ended, as shells count.
    pub(super) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }
}

/// Runs a command to its end. When the future is dropped the command is ended too.
pub(crate) async fn run(job: Job) -> Result<Ended, Fault> {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let dropped = Dropped(Arc::default());
    let is_dropped = dropped.0.clone();
    let (sender, ended) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("flovyn-command".into());
    let started = thread.spawn(move || {
        let _ = sender.send(Running::start(job, is_dropped).and_then(Running::supervise));
    });
    let failed = |error| Fault::machine("a command could not be run".into(), error);
    started.map_err(failed)?;
    ended.await.map_err(|_| failed(io::Error::other("its thread ended early")))?.map_err(failed)
}

/// A command that runs.
struct Running {
    job: Job,
    child: Child,
    pid: Pid,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    decoders: [Decoder; 2],
    capture: Capture,
    streaming: Streaming,
    is_dropped: Arc<AtomicBool>,
    started: Instant,
    measured: Instant,
    termination: Option<Termination>,
}

/// How far the end of a command that is not wanted any more is.
struct Termination {
    why: Why,
    requested_at: Instant,
    is_killed: bool,
}

impl Running {
    fn start(mut job: Job, is_dropped: Arc<AtomicBool>) -> io::Result<Self> {
        let command = &mut job.confined.command;
        let input = job.input.take().map_or_else(Stdio::null, Stdio::from);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).env(MARK, &job.call);
        let bounds = job.bounds;
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                if let Some(bounds) = bounds {
                    limit(Resource::Data, bounds.memory)?;
                    limit(Resource::Core, 0)?;
                    limit(Resource::Fsize, bounds.memory)?;
                }
                Ok(())
            });
        }
        let mut child = match job.confined.restrict.take() {
            None => command.spawn()?,
            // What restricts a thread restricts all that it starts: a thread of its own, which starts nothing else.
            Some(restrict) => std::thread::scope(|scope| {
                let started = scope.spawn(|| restrict().and_then(|()| command.spawn())).join();
                started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it ended early")))
            })?,
        };
        let pid = Pid::from_child(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (streaming, started) = (Streaming::new(job.terminal.take()), Instant::now());
        Ok(Self {
            job,
            child,
            pid,
            stdout,
            stderr,
            decoders: Default::default(),
            capture: Capture::default(),
            streaming,
            is_dropped,
            started,
            measured: started,
            termination: None,
        })
    }

    fn supervise(mut self) -> io::Result<Ended> {
        let mut exited: Option<(ExitStatus, Instant)> = None;
        let mut is_held = false;
        loop {
            self.read(if exited.is_some() || self.is_silent() { Duration::from_millis(1) } else { TICK })?;
            let now = Instant::now();
            self.streaming.tick(now);
            if exited.is_none() {
                exited = self.child.try_wait()?.map(|status| (status, now));
            }
            match exited {
                Some(_) if self.is_silent() => break,
                Some((_, at)) if now.duration_since(at) >= self.job.drain => {
                    is_held = true;
                    break;
                }
                Some(_) => {}
                None => self.bound(now),
            }
        }
        let (status, at) = match exited {
            Some(exited) => exited,
            None => (self.child.wait()?, Instant::now()),
        };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = self.decoders[stream as usize].finish();
            self.record_output(stream, &rest);
        }
        self.streaming.flush();
        let why = self.termination.as_ref().map_or(Why::Exited, |termination| termination.why);
        if why != Why::Exited {
            end_marked(&self.job.call);
            if let Some(clean) = self.job.ended_early.take() {
                clean();
            }
        }
        let took = at.duration_since(self.started);
        Ok(Ended { status, why, output: self.capture.finish(), took, is_held: is_held && why == Why::Exited })
    }

    fn is_silent(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Takes what is there to read, waiting for it at most so long.
    fn read(&mut self, wait: Duration) -> io::Result<()> {
        let ready = {
            let mut polled = Vec::with_capacity(2);
            let open = [self.stdout.as_ref().map(AsFd::as_fd), self.stderr.as_ref().map(AsFd::as_fd)];
            polled.extend(open.iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
            match poll(&mut polled, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => return Ok(()),
                polled => polled?,
            };
            let mut answers = polled.iter().map(|pipe| !pipe.revents().is_empty());
            open.map(|pipe| pipe.is_some() && answers.next().unwrap_or(false))
        };
        let mut buffer = [0; 64 * 1024];
        for (stream, ready) in [Stream::Stdout, Stream::Stderr].into_iter().zip(ready) {
            if !ready {
                continue;
            }
            let read = match stream {
                Stream::Stdout => self.stdout.as_mut().map(|pipe| pipe.read(&mut buffer)),
                Stream::Stderr => self.stderr.as_mut().map(|pipe| pipe.read(&mut buffer)),
            };
            match read {
                Some(Ok(length)) if length > 0 => {
                    let text = self.decoders[stream as usize].decode(&buffer[..length]);
                    self.record_output(stream, &text);
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                _ if stream == Stream::Stdout => self.stdout = None,
                _ => self.stderr = None,
            }
        }
        Ok(())
    }

    fn record_output(&mut self, stream: Stream, text: &str) {
        self.capture.push(text);
        self.streaming.push(stream, text);
        if let Some((file, room)) = &mut self.job.record_to {
            let written = super::excerpt::prefix(text, usize::try_from(*room).unwrap_or(usize::MAX));
            *room -= written.len() as u64;
            // A full disk takes the copy, not the command.
            if file.write_all(written.as_bytes()).is_err() {
                self.job.record_to = None;
            }
        }
    }

    /// Ends a command that is over a bound or not wanted any more: it is asked, then made to.
    fn bound(&mut self, now: Instant) {
        if let Some(termination) = &mut self.termination {
            if !termination.is_killed && now.duration_since(termination.requested_at) >= self.job.grace {
                termination.is_killed = true;
                let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
                end_marked(&self.job.call);
            }
            return;
        }
        let stopped = self.is_dropped.load(Ordering::Acquire) || self.job.stop.as_ref().is_some_and(|stop| stop());
        let why = match self.over_bounds(now) {
            _ if stopped => Why::Stopped,
            _ if now.duration_since(self.started) >= self.job.timeout => Why::TimedOut,
            Some(why) => why,
            None => return,
        };
        self.termination = Some(Termination { why, requested_at: now, is_killed: false });
        if self.job.supervised {
            // The supervisor and the first process of its namespace end with what they supervise.
            for process in family::descendants(self.pid).iter().filter(|process| process.depth > 1) {
                let _ = rustix::process::kill_process(process.pid, Signal::TERM);
            }
        } else {
            let _ = rustix::process::kill_process_group(self.pid, Signal::TERM);
        }
    }

    fn over_bounds(&mut self, now: Instant) -> Option<Why> {
        let bounds = self.job.bounds?;
        if now.duration_since(self.measured) < MEASURE {
            return None;
        }
        self.measured = now;
        let family = family::descendants(self.pid);
        if family.iter().map(|process| family::memory(process.pid)).sum::<u64>() > bounds.memory {
            return Some(Why::TooMuchMemory);
        }
        (family.len() > bounds.processes).then_some(Why::TooManyProcesses)
    }
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    Ok(rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}
