//! A terminal with somebody at it: a pseudo-terminal whose screen is read as a person would.

use super::{PATIENCE, Running, User, until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ROWS: u16 = 50;
const COLUMNS: u16 = 100;
/// Rows that have left the screen and are remembered.
const PAST: usize = 1_000;

/// A command in a terminal.
pub(crate) struct Terminal {
    keys: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All that was written to it.
    written: Arc<Mutex<Vec<u8>>>,
    /// Takes what is written until nobody has the terminal any more.
    reader: Option<JoinHandle<()>>,
    child: Running,
}

impl Terminal {
    /// Starts `flovyn chat` with these words.
    pub(crate) fn chat(user: &User, args: &[&str]) -> Self {
        Self::chat_with(user, args, &[])
    }

    /// Starts it with variables of the environment.
    pub(crate) fn chat_with(user: &User, args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::sized(user, args, variables, (ROWS, COLUMNS))
    }

    /// Starts it in a terminal of so many rows and columns.
    pub(crate) fn sized(user: &User, args: &[&str], variables: &[(&str, &str)], (rows, columns): (u16, u16)) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("it is ours");
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&keys, size).expect("a size");
        let name = ptsname(&keys, Vec::new()).expect("a name").into_string().expect("it is text");
        let open = || OpenOptions::new().read(true).write(true).open(&name).expect("its other side");
        let mut command = user.flovyn(&[&["chat"], args].concat());
        command.envs(variables.iter().copied());
        command.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        let child = Running(command.spawn().expect("it starts"));
        let keys = File::from(keys);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, PAST)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut out, shown, kept) = (keys.try_clone().expect("a second hand"), screen.clone(), written.clone());
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                kept.lock().expect("nobody panics with it").extend_from_slice(&bytes[..count]);
                shown.lock().expect("nobody panics with it").process(&bytes[..count]);
            }
        });
        Self { keys, screen, written, reader: Some(reader), child }
    }

    /// Types.
    pub(crate) fn write(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("it is read");
    }

    /// Types a line.
    pub(crate) fn line(&mut self, text: &str) {
        self.write(&format!("{text}\r"));
    }

    /// Changes the size, as somebody does who pulls at the window.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        self.screen.lock().expect("nobody panics with it").screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.keys, size).expect("a size");
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::WINCH).expect("it is ours");
    }

    /// The time of processors that it has used so far.
    #[cfg(target_os = "linux")]
    pub(crate) fn busy_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.0.id())).expect("it runs");
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        let ticks: u64 = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
    }

    /// What is on the screen.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().expect("nobody panics with it").screen().contents()
    }

    /// A picture of the screen.
    pub(crate) fn svg(&self, title: &str) -> String {
        super::svg::of(self.screen.lock().expect("nobody panics with it").screen(), title)
    }

    /// Waits until the screen shows a text.
    pub(crate) fn shows(&self, wanted: &str) -> String {
        self.waits(wanted, |text| text.contains(wanted))
    }

    /// Waits until the screen is as wanted.
    pub(crate) fn waits(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let text = self.text();
            if holds(&text) {
                return text;
            }
            assert!(since.elapsed() < PATIENCE, "{what:?} does not come; the screen is\n{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end and gives the exit code.
    pub(crate) fn ends(mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.0.try_wait().expect("it is ours") {
                return status.code();
            }
            assert!(since.elapsed() < PATIENCE, "it does not end; the screen is\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, which has to be a good one, and gives all that was written to the terminal.
    pub(crate) fn bytes_at_end(mut self) -> Vec<u8> {
        let (written, reader) = (self.written.clone(), self.reader.take());
        assert_eq!(self.ends(), Some(0));
        // A command has ended before the last that it wrote is taken.
        until("the terminal is read to its end", || reader.as_ref().is_none_or(JoinHandle::is_finished));
        written.lock().expect("nobody panics with it").clone()
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(self) {
        self.child.kill();
    }
}
