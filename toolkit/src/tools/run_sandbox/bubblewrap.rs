//! `run-sandbox` by bubblewrap: a root of its own with the system's libraries and one interpreter.

use super::super::environment::Limits;
use super::super::fault::Fault;
use super::super::process::{Bounds, Confined, program};
use super::{Language, Prepared};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// How much `/tmp` of a program may hold, in bytes.
const SCRATCH: u64 = 64 << 20;

/// An interpreter and where it is installed.
#[derive(Debug, Clone)]
struct Interpreter {
    program: PathBuf,
    prefix: PathBuf,
    version: (u32, u32),
}

/// Prepares a program; the outer error says why nothing can run it.
pub(super) fn prepare(
    bubblewrap: &Path,
    limits: &Limits,
    language: Language,
    code: &str,
) -> Result<Result<Prepared, Fault>, String> {
    static PYTHON: OnceLock<Result<Interpreter, String>> = OnceLock::new();
    static NODE: OnceLock<Result<Interpreter, String>> = OnceLock::new();
    let interpreter = match language {
        Language::Python => PYTHON.get_or_init(|| {
            ask("python3", &["-c", "import sys; print(sys.executable, sys.base_prefix, *sys.version_info[:2], sep='\\n')"])
        }),
        Language::TypeScript => NODE.get_or_init(|| {
            ask("node", &["-p", "const [a, b] = process.versions.node.split('.'); [process.execPath, require('path').resolve(process.execPath, '../..'), a, b].join('\\n')"])
        }),
    };
    let interpreter = interpreter.clone()?;
    Ok(confine(bubblewrap, limits, language, &interpreter, code)
        .map_err(|error| Fault::machine("a sandbox could not be made".into(), error)))
}

/// Asks an interpreter where it is.
fn ask(name: &str, question: &[&str]) -> Result<Interpreter, String> {
    let path = program(name).ok_or_else(|| format!("there is no program {name}"))?;
    let answer = Command::new(path).args(question).stdin(Stdio::null()).output();
    let answer = answer.map_err(|error| format!("{name} does not start: {error}"))?;
    let output = String::from_utf8_lossy(&answer.stdout).into_owned();
    let mut lines = output.lines();
    let mut next = || lines.next().ok_or_else(|| format!("{name} does not say where it is"));
    let (program, prefix) = (PathBuf::from(next()?), PathBuf::from(next()?));
    let mut number = || next()?.parse::<u32>().map_err(|_| format!("{name} does not say its version"));
    let version = (number()?, number()?);
    let program = program.canonicalize().map_err(|error| format!("{name} is not at {}: {error}", program.display()))?;
    Ok(Interpreter { program, prefix, version })
}

fn confine(
    bubblewrap: &Path,
    limits: &Limits,
    language: Language,
    interpreter: &Interpreter,
    code: &str,
) -> io::Result<Prepared> {
    let (name, options, hint) = how(language, limits, interpreter);
    let folder = tempfile::Builder::new().prefix("flovyn-program-").tempdir()?;
    fs::write(folder.path().join(name), code)?;
    let mut command = Command::new(bubblewrap);
    command.args(["--unshare-all", "--die-with-parent", "--clearenv", "--hostname", "sandbox"]);
    command.args(["--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]);
    command.args(["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]);
    command.args(["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]);
    for folder in ["/bin", "/lib", "/lib64", "/lib32", "/sbin"] {
        match fs::read_link(folder) {
            Ok(target) => command.arg("--symlink").arg(target).arg(folder),
            Err(_) => command.args(["--ro-bind-try", folder, folder]),
        };
    }
    for path in [&interpreter.prefix, &interpreter.program] {
        if !path.starts_with("/usr") && path.components().count() > 2 {
            command.arg("--ro-bind").arg(path).arg(path);
        }
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--size", &SCRATCH.to_string(), "--tmpfs", "/tmp"]);
    command.arg("--ro-bind").arg(folder.path()).arg("/program");
    for (name, value) in [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("NO_COLOR", "1"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ] {
        command.args(["--setenv", name, value]);
    }
    command.args(["--chdir", "/tmp", "--"]).arg(&interpreter.program).args(options).arg(format!("/program/{name}"));
    Ok(Prepared {
        engine: "bubblewrap",
        confined: Confined { command, restrict: None },
        supervised: true,
        bounds: Some(Bounds { memory: limits.sandbox_memory, processes: limits.sandbox_processes }),
        input: None,
        ended_early: None,
        _folder: Some(folder),
        hint,
    })
}

/// The program's file name, the interpreter's options, and a hint for failures.
fn how(language: Language, limits: &Limits, interpreter: &Interpreter) -> (&'static str, Vec<String>, Option<String>) {
    match language {
        Language::Python => ("main.py", vec!["-I".into()], None),
        Language::TypeScript => {
            // Leaves room for what is not JavaScript's own.
            let mut options = vec![format!("--max-old-space-size={}", (limits.sandbox_memory >> 20) * 5 / 8)];
            let (major, minor) = interpreter.version;
            if interpreter.version < (22, 6) {
                let hint = format!(
                    "Node.js {major}.{minor} on this worker does not know TypeScript's types, so the program ran as JavaScript; \
                     leave type annotations out, or ask for Node.js 22.6 or newer, or Docker."
                );
                return ("main.mjs", options, Some(hint));
            }
            options.extend(["--experimental-strip-types", "--no-warnings"].map(str::to_owned));
            ("main.ts", options, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_gets_plain_javascript() {
        let node = |version| Interpreter { program: "/usr/bin/node".into(), prefix: "/usr".into(), version };
        let limits = Limits::default();
        let (name, options, hint) = how(Language::TypeScript, &limits, &node((20, 20)));
        assert_eq!((name, options, hint.is_some()), ("main.mjs", vec!["--max-old-space-size=160".to_owned()], true));
        let (name, options, hint) = how(Language::TypeScript, &limits, &node((24, 1)));
        assert!(options.contains(&"--experimental-strip-types".to_owned()) && hint.is_none(), "{options:?}");
        assert_eq!(name, "main.ts");
    }
}
