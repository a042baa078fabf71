//! Finds the processes that a command has started, by `/proc`: its descendants, and all that carry its mark.
//!
//! The mark is a variable in the environment. A process can leave its process group and its parent, but it keeps the
//! environment that it was started with. Where there is no `/proc`, these functions find nothing, and only the process
//! group can be signalled.

use rustix::process::{Pid, Signal};
use std::collections::HashMap;
use std::fs;

/// The variable that marks all processes of a call.
pub(crate) const MARK: &str = "FLOVYN_TOOL_CALL";

/// A process that another one started, directly or through others.
pub(super) struct Descendant {
    pub pid: Pid,
    /// Generations below the other: a child is 1.
    pub depth: usize,
}

fn processes() -> impl Iterator<Item = i32> {
    let folder = fs::read_dir("/proc").into_iter().flatten().flatten();
    folder.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The living descendants of a process, a parent before its children: a script whose child was signalled first would take
/// that for the child's end, and begin its next command.
pub(super) fn descendants(of: Pid) -> Vec<Descendant> {
    let parents: HashMap<i32, i32> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let depth = |pid: i32| {
        let mut at = pid;
        // The list is not read at one moment, and pids are used again. So the chain could be a circle: the loop is
        // bounded.
        for depth in 1..=parents.len() {
            at = *parents.get(&at)?;
            if at == of.as_raw_nonzero().get() {
                return Some(depth);
            }
        }
        None
    };
    let found = parents.keys().filter_map(|&pid| Some(Descendant { pid: Pid::from_raw(pid)?, depth: depth(pid)? }));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable_by_key(|process| process.depth);
    found
}

/// The parent of a living process. None for a zombie.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name comes first, in parentheses, and may itself contain parentheses and spaces.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

/// The memory that a process uses, in bytes. Shared pages are divided among those who share them, where the kernel
/// tells; else they are not counted.
pub(super) fn memory(pid: Pid) -> u64 {
    let pid = pid.as_raw_nonzero();
    let shares = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    let kilobytes = shares.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("Pss:")));
    if let Some(kilobytes) = kilobytes.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()) {
        return kilobytes * 1024;
    }
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/statm")) else { return 0 };
    let mut pages = text.split_whitespace().skip(1).map(|field| field.parse::<u64>().unwrap_or_default());
    let (resident, shared) = (pages.next().unwrap_or_default(), pages.next().unwrap_or_default());
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

/// The living processes that carry the mark of a call.
pub(crate) fn marked(call: &str) -> Vec<Pid> {
    let mark = format!("{MARK}={call}");
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    processes().filter(carries).filter_map(Pid::from_raw).collect()
}

/// Kills all processes that carry the mark of a call, and returns how many.
pub(crate) fn end_marked(call: &str) -> usize {
    let mut ended = 0;
    // A process may start another between the search and its end. So the search is repeated until it finds none.
    for _ in 0..8 {
        let found = marked(call);
        if found.is_empty() {
            break;
        }
        ended += found.len();
        for pid in found {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    ended
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_parent_comes_before_its_children() {
        let script = "for n in 1 2 3 4; do sh -c 'sleep 30 & wait' & done; wait";
        let mut child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let begun = Instant::now();
        let depths = loop {
            let depths: Vec<_> = descendants(pid).iter().map(|process| process.depth).collect();
            if depths.len() == 8 || begun.elapsed() > Duration::from_secs(10) {
                break depths;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = child.wait();
        assert_eq!(depths, [1, 1, 1, 1, 2, 2, 2, 2]);
    }
}
