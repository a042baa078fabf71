//! File tools never leave the working directory: 200 strings that try, and links that change while they are followed.

use crate::{Work, names};
use flovyn_toolkit::tools::{Edit, Find, Grep, Read, Tool, ToolEnvironment, Write};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SECRET: &str = "TOP-SECRET-7f3a";

/// A working directory beside one that must stay unseen and unchanged.
struct Ground {
    folder: tempfile::TempDir,
    environment: ToolEnvironment,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (work, outside) = (folder.path().join("work"), folder.path().join("outside"));
        fs::create_dir_all(work.join("dir/sub/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret.txt"), SECRET).unwrap();
        fs::write(work.join("file.txt"), "inside").unwrap();
        let links: [(&str, &Path); 22] = [
            ("link-out", Path::new("../outside")),
            ("link-absolute", &outside),
            ("link-root", Path::new("/")),
            ("link-dotdot", Path::new("..")),
            ("link-self", Path::new(".")),
            ("link-dir", Path::new("dir/sub")),
            ("link-loop", Path::new("link-loop")),
            ("link-proc", Path::new("/proc/self")),
            ("link-fd", Path::new("/proc/self/fd")),
            ("link-passwd", Path::new("/etc/passwd")),
            ("link-file", Path::new("../outside/secret.txt")),
            ("link-file-absolute", &outside.join("secret.txt")),
            ("chain-1", Path::new("chain-2")),
            ("chain-2", Path::new("dir/chain-3")),
            ("dir/chain-3", Path::new("../../outside")),
            ("dir/link-up", Path::new("../../outside")),
            ("dir/back", Path::new("..")),
            ("dir/sub/deep/link-far", Path::new("../../../../outside")),
            ("dangling", Path::new("../outside/new.txt")),
            ("dangling-absolute", &outside.join("new.txt")),
            ("dir/dangling-up", Path::new("../../new.txt")),
            ("hidden-dir", Path::new("dir")),
        ];
        for (link, target) in links {
            symlink(target, work.join(link)).unwrap();
        }
        let environment = ToolEnvironment::open(&work).unwrap();
        Self { folder, environment }
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn is_untouched(&self) -> bool {
        names(self.folder.path()) == ["outside", "work"]
            && names(&self.outside()) == ["secret.txt"]
            && fs::read_to_string(self.outside().join("secret.txt")).unwrap() == SECRET
    }

    async fn text(&self, tool: &dyn Tool, arguments: Value) -> String {
        // An error of the machine shows nothing either.
        tool.call(arguments, &self.environment).await.map(|outcome| outcome.plain_text()).unwrap_or_default()
    }
}

fn corpus(ground: &Ground) -> Vec<String> {
    let strings: Vec<String> = serde_json::from_str(include_str!("escapes.json")).unwrap();
    assert!(strings.len() >= 200, "{}", strings.len());
    let root = ground.folder.path().to_str().unwrap();
    strings
        .into_iter()
        .map(|text| {
            let text = text.replace("{outside}", &format!("{root}/outside"));
            text.replace("{work}", &format!("{root}/work")).replace("{root}", root)
        })
        .collect()
}

#[tokio::test]
async fn no_string_of_the_corpus_leads_out() {
    let elsewhere =
        ["/tmp", "/var/tmp", "/run", "/home", "/usr"].map(|folder| Path::new(folder).join("flovyn-escape.txt"));
    let account = fs::read_to_string("/etc/passwd").unwrap();
    let account = account.lines().next().unwrap();
    for number in 0..corpus(&Ground::new()).len() {
        let ground = Ground::new();
        let path = corpus(&ground).swap_remove(number);
        let calls: [(&dyn Tool, Value); 8] = [
            (&Read, json!({ "path": path })),
            (&Grep, json!({ "pattern": "SECRET|root:", "path": path })),
            (&Grep, json!({ "pattern": "SECRET|root:", "glob": path })),
            (&Find, json!({ "pattern": "*", "path": path })),
            (&Find, json!({ "pattern": path })),
            (&Edit, json!({ "path": path, "old_string": SECRET, "new_string": "PWNED" })),
            (&Write, json!({ "path": path, "content": "PWNED" })),
            (&Edit, json!({ "path": path, "old_string": SECRET, "new_string": "PWNED" })),
        ];
        for (tool, arguments) in calls {
            let text = ground.text(tool, arguments).await;
            let name = tool.name();
            assert!(!text.contains(SECRET) && !text.contains(account), "{name} read outside by {path:?}: {text}");
            let listed = name == "find" && text.lines().any(|line| line.ends_with("secret.txt"));
            assert!(!listed, "{name} listed outside by {path:?}: {text}");
            assert!(ground.is_untouched(), "{name} changed something outside by {path:?}: {text}");
            assert!(elsewhere.iter().all(|path| !path.exists()), "{name} wrote elsewhere by {path:?}");
        }
    }
}

#[tokio::test]
async fn what_leads_out_is_told_clearly() {
    let ground = Ground::new();
    for path in corpus(&ground).iter().filter(|path| path.starts_with("../outside") || path.starts_with("/etc")) {
        let outcome = Read.call(json!({ "path": path }), &ground.environment).await.unwrap();
        let code = outcome.error_code().unwrap_or_default();
        assert!(["outside", "invalid_path"].contains(&code), "{path:?}: {outcome:?}");
    }
    for path in ["link-out/secret.txt", "link-file", "chain-1/secret.txt", "dir/link-up/secret.txt", "link-passwd"] {
        let outcome = Read.call(json!({ "path": path }), &ground.environment).await.unwrap();
        assert_eq!(outcome.error_code(), Some("outside"), "{path:?}: {outcome:?}");
        assert!(outcome.plain_text().contains("links that lead out are not followed"));
    }
}

#[tokio::test]
async fn paths_inside_are_taken_in_any_form() {
    let work = Work::new();
    work.put("dir/file.txt", "here");
    symlink("dir", work.path().join("link")).unwrap();
    symlink("dir/file.txt", work.path().join("file-link")).unwrap();
    let absolute = work.path().join("dir/file.txt");
    let dotted = work.path().join("./dir/../dir/file.txt");
    let mut paths =
        vec!["dir/file.txt", "./dir//file.txt", "dir/../dir/file.txt", "link/file.txt", "link/../dir/file.txt"];
    paths.extend(["file-link", absolute.to_str().unwrap(), dotted.to_str().unwrap()]);
    for path in paths {
        let outcome = work.call(Read, json!({ "path": path })).await;
        assert!(outcome.plain_text().contains("here"), "{path}: {outcome:?}");
    }
    // A write follows a link inside and leaves it a link.
    assert!(!work.call(Write, json!({ "path": "file-link", "content": "new" })).await.is_error);
    assert!(work.path().join("file-link").is_symlink());
    assert_eq!(work.get("dir/file.txt"), b"new");
}

#[tokio::test]
async fn what_is_no_file_is_refused_without_waiting() {
    let work = Work::new();
    rustix::fs::mknodat(CWD, work.path().join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(work.path().join("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(work.path().join("socket")).unwrap();
    for (path, codes) in [
        ("pipe", &["not_a_file"][..]),
        ("socket", &["not_a_file", "file_error"]),
        ("folder", &["is_directory"]),
        ("folder/", &["is_directory"]),
        (".", &["is_directory"]),
    ] {
        for (tool, arguments) in [
            (&Read as &dyn Tool, json!({ "path": path })),
            (&Write, json!({ "path": path, "content": "x" })),
            (&Edit, json!({ "path": path, "old_string": "a", "new_string": "b" })),
        ] {
            let call = tool.call(arguments, &work.environment);
            let outcome =
                tokio::time::timeout(Duration::from_secs(30), call).await.expect("it waits for nothing").unwrap();
            let code = outcome.error_code().unwrap_or_default();
            assert!(codes.contains(&code), "{} of {path}: {outcome:?}", tool.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn links_that_change_while_they_are_followed_lead_nowhere() {
    let ground = Ground::new();
    let work = ground.folder.path().join("work");
    // What is swapped: a directory with a link to the outside, a file with a link to the secret.
    for (name, target) in [("swap", "../outside"), ("swap.txt", "../outside/secret.txt")] {
        symlink(target, work.join(format!("{name}-other"))).unwrap();
    }
    fs::create_dir(work.join("swap")).unwrap();
    fs::write(work.join("swap/secret.txt"), "harmless").unwrap();
    fs::write(work.join("swap.txt"), "harmless").unwrap();
    let (end, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let swappers: Vec<_> = ["swap", "swap.txt"]
        .into_iter()
        .map(|name| {
            let (end, swaps, work) = (end.clone(), swaps.clone(), work.clone());
            std::thread::spawn(move || {
                let (one, other) = (work.join(name), work.join(format!("{name}-other")));
                while !end.load(Ordering::Relaxed) {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(3);
    let calls: [(&'static dyn Tool, Value); 8] = [
        (&Read, json!({ "path": "swap/secret.txt" })),
        (&Read, json!({ "path": "swap.txt" })),
        (&Write, json!({ "path": "swap/new.txt", "content": "PWNED" })),
        (&Write, json!({ "path": "swap/made/deep.txt", "content": "PWNED" })),
        (&Edit, json!({ "path": "swap/secret.txt", "old_string": SECRET, "new_string": "PWNED" })),
        (&Edit, json!({ "path": "swap.txt", "old_string": "SECRET", "new_string": "PWNED" })),
        (&Grep, json!({ "pattern": "SECRET|harmless" })),
        (&Find, json!({ "pattern": "**/*.txt" })),
    ];
    let callers = calls.map(|(tool, arguments)| {
        let environment = ground.environment.clone();
        tokio::spawn(async move {
            let (mut worked, mut refused) = (0_u32, 0_u32);
            while Instant::now() < until {
                let Ok(outcome) = tool.call(arguments.clone(), &environment).await else { continue };
                let text = outcome.plain_text();
                assert!(!text.contains(SECRET), "{} {arguments} read the secret: {text}", tool.name());
                if outcome.is_error { refused += 1 } else { worked += 1 }
            }
            (tool.name(), worked, refused)
        })
    });
    let mut ended = Vec::new();
    for caller in callers {
        ended.push(caller.await.unwrap());
    }
    end.store(true, Ordering::Relaxed);
    swappers.into_iter().for_each(|swapper| swapper.join().unwrap());
    assert!(ground.is_untouched(), "{:?}", names(&ground.outside()));
    // The race was one: reads met the file and the link.
    assert!(swaps.load(Ordering::Relaxed) > 1_000, "{swaps:?} swaps");
    assert!(ended.iter().any(|(name, worked, refused)| *name == "read" && *worked > 0 && *refused > 0), "{ended:?}");
    assert!(ended.iter().any(|(name, worked, _)| *name == "write" && *worked > 0), "{ended:?}");
}
