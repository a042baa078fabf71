//! Confined commands, by what this machine has: what they can do, what they cannot, and what is said where nothing confines.

use crate::Work;
use flovyn_toolkit::tools::{Availability, Bash, Limits, RunSandbox, Sandbox, Tool, ToolEnvironment, ToolOutcome};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

/// Says what this machine cannot test; not by `println`, which is not shown for a test that passes.
pub(crate) fn say(what: &str) {
    writeln!(std::io::stderr(), "NOT TESTED HERE: {what}").expect("standard error is there");
}

/// What is tried: each way this machine has, alone.
fn ways() -> Vec<(&'static str, Availability)> {
    let found = Availability::probe();
    let none = Availability::none("left out by this test");
    let mut ways = Vec::new();
    for (name, result) in
        [("bubblewrap", found.bubblewrap.as_ref().map(|_| ())), ("landlock", found.landlock.as_ref().map(|_| ()))]
    {
        match result {
            Ok(()) if name == "bubblewrap" => {
                ways.push((name, Availability { bubblewrap: found.bubblewrap.clone(), ..none.clone() }));
            }
            Ok(()) => ways.push((name, Availability { landlock: Ok(()), ..none.clone() })),
            Err(why) => say(&format!("{name}, since {why}")),
        }
    }
    ways
}

fn confined(work: &Work, available: Availability) -> ToolEnvironment {
    work.environment.clone().with_sandbox(Sandbox::Required).with_available(available)
}

async fn bash(environment: &ToolEnvironment, command: &str) -> ToolOutcome {
    Bash.call(json!({ "command": command, "timeout": 20 }), environment).await.unwrap()
}

#[tokio::test]
async fn without_a_sandbox_nothing_runs_and_the_way_out_is_said() {
    let work = Work::new();
    let environment = confined(&work, Availability::none("not on this machine"));
    let outcome = bash(&environment, "touch ran").await;
    assert_eq!(outcome.error_code(), Some("no_sandbox"), "{outcome:?}");
    let text = outcome.plain_text();
    assert!(text.contains("apt-get install bubblewrap") && text.contains("not on this machine"), "{text}");
    assert!(!work.path().join("ran").exists());
    // The same where the environment says nothing: required is what holds unless somebody says otherwise.
    let plain = ToolEnvironment::open(work.path()).unwrap().with_available(Availability::none("not on this machine"));
    assert_eq!(bash(&plain, "touch ran").await.error_code(), Some("no_sandbox"));
}

#[tokio::test]
async fn confined_commands_write_in_the_working_directory_alone() {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let outside = outside.path().to_str().unwrap();
    for (name, available) in ways() {
        let work = Work::new();
        let environment = confined(&work, available);
        let outcome = bash(&environment, "echo inside > made && cat made && mkdir -p a/b && mv made a/b").await;
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), ("inside\n", false), "{name}: {outcome:?}");
        assert_eq!(outcome.details["sandbox"], name);
        assert!(work.path().join("a/b/made").exists(), "{name}");
        for place in [outside, "/etc", "/usr", "/root", "/var/tmp"] {
            let outcome = bash(&environment, &format!("echo x > {place}/flovyn-escape")).await;
            let exists = std::path::Path::new(place).join("flovyn-escape").exists();
            assert!(outcome.is_error && !exists, "{name} wrote to {place}: {outcome:?}");
        }
        // A place for temporary files is there, and stays for the next command.
        let outcome = bash(&environment, "echo kept > $TMPDIR/note").await;
        assert!(!outcome.is_error, "{name}: {outcome:?}");
        assert_eq!(bash(&environment, "cat $TMPDIR/note").await.plain_text(), "kept\n", "{name}");
        let more = environment.clone().with_writable(outside);
        let outcome = bash(&more, &format!("echo x > {outside}/allowed-{name}")).await;
        assert!(!outcome.is_error, "{name}: {outcome:?}");
    }
}

/// Where an environment says what commands see, they see no more of the computer than programs, the workspace and that.
#[tokio::test]
async fn confined_commands_see_no_more_than_they_are_shown() {
    let (hidden, shown) = (tempfile::tempdir_in("/var/tmp").unwrap(), tempfile::tempdir_in("/var/tmp").unwrap());
    for (folder, word) in [(&hidden, "secret"), (&shown, "known")] {
        std::fs::write(folder.path().join("word.txt"), word).unwrap();
    }
    let (hidden, shown) = (hidden.path().display().to_string(), shown.path().display().to_string());
    for (name, available) in ways() {
        let work = Work::new();
        std::fs::write(work.path().join("own.txt"), "own").unwrap();
        let all = confined(&work, available);
        assert_eq!(bash(&all, &format!("cat {hidden}/word.txt")).await.plain_text(), "secret", "{name}");
        let environment = all.with_readable_only([&shown]);
        let outcome = bash(&environment, &format!("cat own.txt {shown}/word.txt; grep -c . own.txt")).await;
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), ("ownknown1\n", false), "{name}: {outcome:?}");
        for place in
            [format!("{hidden}/word.txt"), "/etc/shadow".into(), "/var/log/dpkg.log".into(), "/root/.bashrc".into()]
        {
            let outcome = bash(&environment, &format!("cat {place}")).await;
            assert!(outcome.is_error && !outcome.plain_text().contains("secret"), "{name} read {place}: {outcome:?}");
        }
        let outcome = bash(&environment, &format!("echo x > {shown}/more")).await;
        assert!(outcome.is_error, "{name}: {outcome:?}");
        // Others' processes tell nothing either: this one has the path in its memory, and its environment.
        let outcome =
            bash(&environment, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep CARGO_PKG_NAME").await;
        assert!(outcome.is_error, "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn confined_commands_have_no_network_unless_given() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let command = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    for (name, available) in ways() {
        let work = Work::new();
        let environment = confined(&work, available);
        let outcome = bash(&environment, &command).await;
        assert!(outcome.is_error && !outcome.plain_text().contains("connected"), "{name}: {outcome:?}");
        let outcome = bash(&environment.with_network(true), &command).await;
        assert_eq!(outcome.plain_text(), "connected\n", "{name}");
    }
}

#[tokio::test]
async fn confined_commands_end_with_all_they_started() {
    for (name, available) in ways() {
        let work = Work::new();
        let environment = confined(&work, available);
        let started = Instant::now();
        let arguments = json!({
            "command": "trap 'echo cleaned > cleaned' TERM; setsid sleep 3611 & sleep 3611 & echo begun; wait; sleep 3611",
            "timeout": 0.7
        });
        let outcome = Bash.call(arguments, &environment).await.unwrap();
        assert!(outcome.plain_text().contains("begun") && outcome.details["timedOut"] == true, "{name}: {outcome:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
        assert!(work.path().join("cleaned").exists(), "{name}: it was asked before it was made to");
        let left = std::process::Command::new("pgrep").args(["-f", "^sleep 3611"]).output().unwrap();
        assert!(left.stdout.is_empty(), "{name} left {}", String::from_utf8_lossy(&left.stdout));
    }
}

#[tokio::test]
async fn bubblewrap_hides_processes_sockets_and_keys() {
    let Some((_, available)) = ways().into_iter().find(|(name, _)| *name == "bubblewrap") else { return };
    let work = Work::new();
    let environment = confined(&work, available);
    let outcome =
        bash(&environment, "ls /proc | grep -c '^[0-9]'; ls -A /run | wc -l; ls -A ~/.ssh 2>/dev/null | wc -l").await;
    let counts: Vec<u32> = outcome.plain_text().lines().filter_map(|line| line.parse().ok()).collect();
    assert!(counts[0] < 10 && counts[1..] == [0, 0], "{outcome:?}");
}

#[tokio::test]
async fn added_directories_and_private_caches_are_writable() {
    let more = tempfile::tempdir_in("/var/tmp").unwrap();
    let added = more.path().join("added");
    std::fs::create_dir_all(added.join(".git/hooks")).unwrap();
    for (name, available) in ways() {
        let work = Work::new();
        let caches = more.path().join("caches");
        let environment = confined(&work, available).with_caches(&caches).with_directory(&added).unwrap();
        let place = added.display();
        let outcome = bash(&environment, &format!("echo x > {place}/made-{name} && cat {place}/made-{name}")).await;
        assert_eq!(outcome.plain_text(), "x\n", "{name}: {outcome:?}");
        let outcome = bash(&environment, &format!("echo evil > {place}/.git/hooks/pre-commit")).await;
        assert!(outcome.is_error && !added.join(".git/hooks/pre-commit").exists(), "{name}: {outcome:?}");
        let outcome =
            bash(&environment, "for f in $npm_config_cache $PIP_CACHE_DIR $GOCACHE; do echo x > $f/x; done").await;
        assert!(!outcome.is_error && caches.join("npm/x").exists(), "{name}: {outcome:?}");
        let home =
            |environment: ToolEnvironment| async move { bash(&environment, "echo ${CARGO_HOME-}").await.plain_text() };
        let private = format!("{}\n", caches.join("cargo").display());
        assert_ne!(home(environment.clone()).await, private, "{name}: what is there is needed without the network");
        assert_eq!(home(environment.with_network(true)).await, private, "{name}");
    }
}

/// A repository with a hook, and what else is run later.
fn repository() -> Work {
    let work = Work::new();
    let git = |arguments: &[&str]| {
        let done = std::process::Command::new("git").args(arguments).current_dir(work.path()).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {done:?}");
    };
    work.put("a.txt", "one");
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "one"]);
    let hook = work.path().join(".git/hooks/pre-commit");
    work.put(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n");
    std::fs::set_permissions(hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    work.put(".vscode/tasks.json", "{}");
    work.put("sub/.envrc", "export A=1\n");
    work.put(".nvim.lua", "-- old");
    work.put("otters.code-workspace", "{}");
    work
}

#[tokio::test]
async fn confined_commands_leave_alone_what_is_run_later() {
    for (name, available) in ways() {
        let work = repository();
        let environment = confined(&work, available);
        let config = std::fs::read_to_string(work.path().join(".git/config")).unwrap();
        let read = |path: &str| std::fs::read_to_string(work.path().join(path)).unwrap_or_default();
        for command in [
            "echo evil > .git/hooks/pre-commit",
            "echo evil > .git/hooks/post-commit",
            "git config core.hooksPath .",
            "rm -rf .git/hooks",
            "mv .git/hooks hooks && mkdir .git/hooks && echo evil > .git/hooks/pre-commit",
            "echo evil > .vscode/tasks.json",
            "rm -r .vscode",
            "echo evil > sub/.envrc",
            "ln -s ../.git/hooks sub/link && echo evil > sub/link/pre-commit",
            "echo evil > .envrc",
            "mkdir -p .claude .idea && echo evil > .claude/settings.json",
            "echo evil > .mcp.json",
            "echo evil > .nvim.lua",
            "rm otters.code-workspace && echo evil > otters.code-workspace",
            "echo evil > .exrc",
            "echo evil > sub/.vimrc",
            "echo evil > .gvimrc",
            "echo evil > .nvimrc",
            "echo evil > sub/.dir-locals.el",
            "echo evil > .dir-locals-2.el",
            "echo evil > sub/seals.code-workspace",
        ] {
            let outcome = bash(&environment, command).await;
            assert!(outcome.is_error, "{name} let it: {command}: {outcome:?}");
            assert_eq!(read(".git/hooks/pre-commit"), "#!/bin/sh\nexit 0\n", "{name}: {command}");
            assert_eq!(
                (read(".git/config"), read(".vscode/tasks.json")),
                (config.clone(), "{}".into()),
                "{name}: {command}"
            );
            assert_eq!(read("sub/.envrc"), "export A=1\n", "{name}: {command}");
            assert_eq!(
                (read(".nvim.lua"), read("otters.code-workspace")),
                ("-- old".into(), "{}".into()),
                "{name}: {command}"
            );
            for new in [
                ".git/hooks/post-commit",
                ".envrc",
                ".claude",
                ".idea",
                ".mcp.json",
                ".exrc",
                "sub/.vimrc",
                ".gvimrc",
                ".nvimrc",
                "sub/.dir-locals.el",
                ".dir-locals-2.el",
                "sub/seals.code-workspace",
            ] {
                assert!(!work.path().join(new).exists(), "{name} left {new}: {command}");
            }
        }
        let outcome = bash(&environment, "echo 'root = true' > .editorconfig").await;
        assert!(!outcome.is_error && read(".editorconfig") == "root = true\n", "{name}: {outcome:?}");
        let outcome =
            bash(&environment, "git status --short -uno && git log --oneline | wc -l && git diff --stat").await;
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), ("1\n", false), "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_command_may_be_run_outside_for_a_reason() {
    let work = repository();
    let environment = confined(&work, Availability::probe().clone());
    let run = |arguments: serde_json::Value| async { Bash.call(arguments, &environment).await.unwrap() };
    let command = "echo two > a.txt && git -c user.name=a -c user.email=a@b.c commit --quiet -am two && git log --oneline | wc -l";
    let refused = run(json!({ "command": command, "outsideSandbox": true })).await;
    assert_eq!(refused.error_code(), Some("invalid_arguments"), "{refused:?}");
    let outcome = run(json!({ "command": command, "outsideSandbox": true, "reason": "to commit" })).await;
    assert_eq!((outcome.plain_text().as_str(), &outcome.details["sandbox"]), ("2\n", &json!("off")), "{outcome:?}");
    let next = run(json!({ "command": "echo x > .git/hooks/pre-commit" })).await;
    assert!(next.is_error && next.details["sandbox"] != "off", "it was for one command: {next:?}");
}

#[tokio::test]
async fn keys_below_the_home_directory_cannot_be_read() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let put = |path: &str| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "TOP-SECRET").unwrap();
    };
    let keys = [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".gnupg/private",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".kube/config",
        ".docker/config.json",
        ".config/gcloud/key.json",
        ".cargo/credentials.toml",
        ".mozilla/firefox/logins.json",
        ".git-credentials",
    ];
    keys.iter().for_each(|key| put(key));
    put("notes.txt");
    put(".config/other.toml");
    // The commands of this program alone: what a process has as its home it has for all its threads.
    let tried = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::reads_keys_of_the_home_directory", "--ignored", "--nocapture"])
        .env("HOME", home.path())
        .env("FLOVYN_TEST_KEYS", keys.join(" "))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(tried.status.success() && said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&tried.stderr));
}

#[tokio::test]
#[ignore = "it is run by another test, with a home directory of its own"]
async fn reads_keys_of_the_home_directory() {
    let Ok(keys) = std::env::var("FLOVYN_TEST_KEYS") else { return };
    for (name, available) in ways() {
        let work = Work::new();
        let environment = confined(&work, available);
        for key in keys.split(' ') {
            for command in [
                format!("cat ~/{key}"),
                format!("ln -sf ~/{key} link && cat link"),
                format!("cd ~ && cp {key} $TMPDIR/x; cat $TMPDIR/x"),
            ] {
                let outcome = bash(&environment, &command).await;
                assert!(!outcome.plain_text().contains("SECRET"), "{name} read {key}: {command}: {outcome:?}");
            }
        }
        let outcome = bash(
            &environment,
            "cat ~/notes.txt ~/.config/other.toml && ls /usr >/dev/null && cat /etc/passwd | head -c 1",
        )
        .await;
        assert!(outcome.plain_text().starts_with("TOP-SECRETTOP-SECRET") && !outcome.is_error, "{name}: {outcome:?}");
        // A working directory that holds them is no way around.
        let at_home =
            ToolEnvironment::open(std::env::var("HOME").unwrap()).unwrap().with_available(environment_of(name));
        match Bash.call(json!({ "command": "cat .ssh/id_ed25519 .netrc; echo; cat notes.txt" }), &at_home).await {
            Ok(outcome) => assert_eq!(outcome.plain_text().matches("SECRET").count(), 1, "{name}: {outcome:?}"),
            Err(error) => assert!(name == "landlock" && error.message().contains("holds keys"), "{name}: {error}"),
        }
    }
}

fn environment_of(name: &str) -> Availability {
    ways().into_iter().find(|(way, _)| *way == name).expect("it was there").1
}

async fn program(environment: &ToolEnvironment, language: &str, code: &str) -> ToolOutcome {
    RunSandbox.call(json!({ "language": language, "code": code }), environment).await.unwrap()
}

fn has_engine(outcome: &ToolOutcome) -> bool {
    if outcome.error_code() == Some("no_sandbox") {
        say(&outcome.plain_text());
        assert!(Availability::probe().bubblewrap.is_err(), "with bubblewrap it has to work: {outcome:?}");
        return false;
    }
    true
}

#[tokio::test]
async fn programs_run_alone() {
    let work = Work::new();
    work.put("secret.txt", "secret");
    let environment = work.environment.clone();
    let first = program(&environment, "python", "print(sum(range(101)))").await;
    if !has_engine(&first) {
        return;
    }
    assert_eq!((first.plain_text().as_str(), first.is_error), ("5050\n", false), "{first:?}");
    let path = work.path().join("secret.txt");
    for (code, said) in [
        (format!("open({path:?})"), "FileNotFoundError"),
        ("open('/etc/passwd')".into(), "FileNotFoundError"),
        ("open('/usr/x', 'w')".into(), "OSError"),
        ("import socket; socket.create_connection(('1.1.1.1', 53), 2)".into(), "OSError"),
        ("raise SystemExit(7)".into(), "Command exited with code 7."),
        ("x = bytearray(400 << 20); x[::4096] = b'1' * len(x[::4096])".into(), "emory"),
    ] {
        let outcome = program(&environment, "python", &code).await;
        assert!(outcome.is_error && outcome.plain_text().contains(said), "{code}: {outcome:?}");
    }
    let wrote = program(&environment, "python", "open('/tmp/x', 'w').write('1'); print(open('/tmp/x').read())").await;
    assert_eq!(wrote.plain_text(), "1\n");
    let again = program(&environment, "python", "import os; print(os.listdir('/tmp'), os.getuid())").await;
    assert_eq!(again.plain_text(), "[] 65534\n", "nothing is left of the program before");
    let script = program(&environment, "typescript", "console.log([1, 2, 3].map(x => x * 2).join())").await;
    assert_eq!((script.plain_text().as_str(), script.is_error), ("2,4,6\n", false), "{script:?}");
    let typed = program(&environment, "typescript", "const x: number = 4; console.log(x)").await;
    let text = typed.plain_text();
    assert!(text == "4\n" || (typed.is_error && text.contains("Node.js 22.6 or newer")), "{typed:?}");
}

#[tokio::test]
async fn programs_end_at_their_bounds() {
    let work = Work::new();
    let within = |seconds| {
        work.environment.clone().with_limits(Limits {
            sandbox_time: Duration::from_secs(seconds),
            sandbox_processes: 20,
            grace: Duration::from_millis(300),
            ..Limits::default()
        })
    };
    let environment = within(2);
    let first = program(&environment, "python", "import time\nprint('begun', flush=True)\ntime.sleep(60)").await;
    if !has_engine(&first) {
        return;
    }
    let text = first.plain_text();
    assert!(text.contains("begun") && text.contains("took longer than 2 seconds"), "{text}");
    // A machine that is busy takes long to fill the memory: these end by another bound.
    let environment = within(40);
    let forks = "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        time.sleep(60)\ntime.sleep(60)";
    let text = program(&environment, "python", forks).await.plain_text();
    assert!(text.contains("more processes than it may") || text.contains("BlockingIOError"), "{text}");
    // Many processes that are small each, and large together.
    let family = "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = bytearray(80 << 20)\n        time.sleep(60)\ntime.sleep(60)";
    let text = program(&environment, "python", family).await.plain_text();
    assert!(text.contains("more memory than it may"), "{text}");
}

#[tokio::test]
async fn without_an_engine_programs_do_not_run() {
    let work = Work::new();
    let environment = work.environment.clone().with_available(Availability::none("not on this machine"));
    let outcome = program(&environment, "python", "print(1)").await;
    let text = outcome.plain_text();
    let by_docker = outcome.details["sandbox"] == "docker" && text == "1\n";
    assert!(
        by_docker
            || (outcome.error_code() == Some("no_sandbox")
                && text.contains("Docker")
                && text.contains("not on this machine")),
        "{outcome:?}"
    );
}
