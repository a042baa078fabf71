//! Lines that are taken apart, lines that are not, and lines of chance, which a real shell runs.

use super::*;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command as Process, Stdio};

fn parts(line: &str) -> Option<Vec<String>> {
    simple_commands(line).map(|commands| commands.iter().map(|words| words.join(" ")).collect())
}

#[test]
fn compound_commands_are_taken_apart() {
    for (line, expected) in [
        ("git status", vec!["git status"]),
        ("  git   status  ", vec!["git status"]),
        ("cargo fmt && cargo test -p core", vec!["cargo fmt", "cargo test -p core"]),
        ("a || b; c | d\ne", vec!["a", "b", "c", "d", "e"]),
        ("(cd sub && make test) 2>&1 | tail -n 5", vec!["cd sub", "make test", "tail -n 5"]),
        ("make > /dev/null 2>&1", vec!["make"]),
        ("make &>/dev/null < /dev/null", vec!["make"]),
        ("git commit -m 'a; b $(c)'", vec!["git commit -m a; b $(c)"]),
        ("git commit -m \"a && b\"", vec!["git commit -m a && b"]),
        ("git log HEAD~3..HEAD", vec!["git log HEAD~3..HEAD"]),
        ("dd if=/dev/zero", vec!["dd if=/dev/zero"]),
        ("sh test.sh", vec!["sh test.sh"]),
        ("g'i't status", vec!["git status"]),
        ("grep -v x", vec!["grep -v x"]),
    ] {
        assert_eq!(
            parts(line).as_deref(),
            Some(&expected.into_iter().map(str::to_owned).collect::<Vec<_>>()[..]),
            "{line:?}"
        );
    }
}

#[test]
fn what_the_shell_would_work_out_is_not_taken_apart() {
    for line in [
        "",
        " ",
        "ls $(rm x)",
        "ls `rm x`",
        "ls <(rm x)",
        "ls \"$(rm x)\"",
        "ls $HOME",
        "ls \"$HOME\"",
        "ls *",
        "ls a?",
        "ls [ab]",
        "ls {a,b}",
        "ls ~",
        "ls ~/x",
        "ls > x",
        "ls >> x",
        "ls >| x",
        "ls < x",
        "ls <> x",
        "ls &> x",
        "ls >&x",
        "cat <<E\nrm x\nE",
        "cat <<< x",
        "eval ls",
        "sh -c ls",
        "bash -c 'rm x'",
        "bash",
        "echo rm | sh",
        "sh -s",
        "env A=1 ls",
        "A=1 ls",
        "A=1",
        "PATH=. ls",
        "export PATH=.; ls",
        "sudo ls",
        "/usr/bin/env ls",
        "xargs rm",
        "find . | xargs rm",
        "command ls",
        "exec ls",
        "f() { rm x; }; f",
        "function f { rm x; }",
        "{ rm x; }",
        "if true; then rm x; fi",
        "for i in a; do rm x; done",
        "while true; do rm x; done",
        "case a in a) rm x;; esac",
        "[[ a ]]",
        "((a))",
        "! ls",
        "time ls",
        "ls &",
        "ls & rm x",
        "coproc rm",
        "ls \\\n rm",
        "ls 'a",
        "ls \"a",
        "ls \\; rm",
        "ls # x",
        "ls\r",
        "ls\u{a0}x",
        "ls\0",
        "source x",
        ". x",
        "trap 'rm x' EXIT",
        "alias ls=rm",
        "printf -v PATH .",
        "test -v 'a[$(rm x)]'",
        "read PATH",
        "select x in a; do rm; done",
        "ls;; rm",
        "ls &&",
        "( ( ( ( ( ( ( ( (ls) ) ) ) ) ) ) ) )",
        "ls | ((ls a)\nls 'a b'x)\n",
        "ls 2>&11",
        "ls 2>&12>&1",
        "$'ls'",
        "compgen -C rm x",
        "'A=1' ls",
        "jobs -x rm",
    ] {
        assert_eq!(parts(line), None, "{line:?}");
    }
}

#[test]
fn quoted_words_are_read_as_the_same_words() {
    let mut chance = fastrand::Rng::with_seed(7);
    let letters: Vec<char> = "ab'\"\\$ `*~#;é\n".chars().collect();
    for _ in 0..2_000 {
        let mut word =
            || (0..chance.usize(0..5)).map(|_| *chance.choice(&letters).expect("a letter")).collect::<String>();
        let words = vec!["ok".to_owned(), word(), word()];
        let read = simple_commands(&quoted(&words));
        assert!(read.as_ref() == Some(&vec![words.clone()]), "{words:?} is read as {read:?}");
    }
}

const PIECES: &[&str] = &[
    "ok",
    "ok a",
    "ok 'a b'",
    "ok \"a b\"",
    "evil",
    "evil a",
    "'evil'",
    "'",
    "\"",
    "\\",
    "\\\n",
    "$(evil)",
    "`evil`",
    "`",
    "$(",
    "${",
    "$",
    "\"$(evil)\"",
    "'$(evil)'",
    "<(evil)",
    ">(evil)",
    ";",
    ";;",
    "&&",
    "||",
    "|",
    "|&",
    "&",
    "\n",
    "(",
    ")",
    "((",
    "))",
    "{",
    "}",
    "{ ",
    "<",
    ">",
    ">>",
    "<<E",
    "\nE\n",
    "<<<",
    "<>",
    ">|",
    ">&",
    "&>",
    "2>&1",
    "2>",
    ">/dev/null",
    "out",
    "eval",
    "exec",
    "command",
    "env",
    "sh -c",
    "bash -c",
    "sh",
    "X=1",
    "PATH=.",
    "=",
    "function ok",
    "ok()",
    "ok() {",
    "#",
    " #",
    "!",
    "if",
    "then",
    "else",
    "fi",
    "for i in",
    "do",
    "done",
    "while",
    "until",
    "case x in",
    "x)",
    "esac",
    "$'",
    "$\"",
    "~",
    "*",
    "?",
    "[",
    "]",
    "[[",
    "]]",
    "time",
    "coproc",
    "alias ok=evil",
    "trap evil EXIT",
    "test -v",
    "printf -v",
    "'a[$(evil)]'",
    "-v",
    "source",
    ".",
    "select x in",
    " ",
    "  ",
    "\t",
    "\r",
    "\u{a0}",
    "\u{2028}",
    "xargs",
    "nohup",
    "timeout 1",
    "1",
    "2",
    "-",
    "--",
    "-c",
    "é",
    "a",
    "@(evil)",
    "+(",
    "\u{0}",
    "\u{1}",
    "builtin",
    "let",
    "declare",
];

/// A line of chance: commands that are allowed, joined as people join them, with a few pieces put in anywhere.
fn line(chance: &mut fastrand::Rng) -> String {
    let mut pieces: Vec<&str> = Vec::new();
    for _ in 0..chance.usize(1..4) {
        pieces.push(chance.choice(["ok", "ok a", "ok 'a b'", "(ok a)"]).expect("one"));
        pieces.push(chance.choice([" && ", "; ", " | ", "\n", " || "]).expect("one"));
    }
    if chance.bool() {
        pieces.pop();
    }
    for _ in 0..chance.usize(0..4) {
        let place = chance.usize(0..=pieces.len());
        pieces.insert(place, chance.choice(PIECES).expect("one"));
        if chance.bool() {
            pieces.insert(place, " ");
        }
    }
    pieces.concat()
}

fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
}

/// A line whose parts all begin with `ok` runs `ok` and builtins of the shell, and leaves no file.
#[test]
fn an_allowed_line_runs_nothing_else_in_a_real_shell() {
    let folder = tempfile::tempdir().expect("a folder");
    let (programs, work, log) = (folder.path().join("bin"), folder.path().join("work"), folder.path().join("log"));
    fs::create_dir(&programs).expect("a folder");
    fs::create_dir(&work).expect("a folder");
    program(&programs, "ok", "#!/bin/sh\nexit 0\n");
    for name in ["evil", "a", "out", "do", "1"] {
        program(&programs, name, &format!("#!/bin/sh\necho {name} >> {}\n", log.display()));
        program(&work, name, &format!("#!/bin/sh\necho {name} >> {}\n", log.display()));
    }
    let before = fs::read_dir(&work).expect("a folder").count();
    let seed = fastrand::u64(..);
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut allowed = BTreeSet::new();
    for _ in 0..30_000 {
        let line = line(&mut chance);
        let passes = simple_commands(&line).is_some_and(|commands| commands.iter().all(|words| words[0] == "ok"));
        if passes && allowed.len() < 400 {
            allowed.insert(line);
        }
    }
    assert!(allowed.len() > 100, "seed {seed}: only {} lines are allowed", allowed.len());
    for line in &allowed {
        let ended = Process::new("/bin/bash")
            .arg("-c")
            .arg(line)
            .current_dir(&work)
            .env_clear()
            .env("PATH", &programs)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .expect("bash starts");
        assert!(!log.exists(), "seed {seed}: {line:?} ran {:?}", fs::read_to_string(&log));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.is_empty(), "seed {seed}: {line:?} said {said}");
        assert_eq!(fs::read_dir(&work).expect("a folder").count(), before, "seed {seed}: {line:?} left a file");
    }
}
