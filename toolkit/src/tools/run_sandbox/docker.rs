//! `run-sandbox` by Docker: a container for each program.

use super::super::environment::Limits;
use super::super::fault::Fault;
use super::super::process::{Confined, program};
use super::{Language, Prepared};
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

impl Language {
    fn image(self) -> &'static str {
        match self {
            Self::Python => "python:3.13-slim",
            Self::TypeScript => "node:24-slim",
        }
    }

    /// Takes the program from standard input, then runs it without one. Its own limit ends it where this process has died.
    fn script(self, seconds: u64) -> String {
        match self {
            Self::Python => format!("cat > /tmp/main.py && exec timeout {seconds} python -I /tmp/main.py < /dev/null"),
            Self::TypeScript => format!("cat > /tmp/main.ts && exec timeout {seconds} node /tmp/main.ts < /dev/null"),
        }
    }
}

/// Prepares a container; the outer error says why there is none.
pub(super) fn prepare(
    limits: &Limits,
    call: &str,
    language: Language,
    code: &str,
) -> Result<Result<Prepared, Fault>, String> {
    let docker = program("docker").ok_or("there is no program docker")?;
    has_image(&docker, language.image())?;
    let input = || -> std::io::Result<_> {
        let mut file = tempfile::tempfile()?;
        file.write_all(code.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    // Another attempt of the call may find the container of the one that died.
    let name = format!("flovyn-{call}-{}", uuid::Uuid::new_v4().simple());
    Ok(input().map_err(|error| Fault::machine("a program could not be written".into(), error)).map(|input| {
        let mut command = Command::new(&docker);
        command.args(arguments(limits, &name, language));
        Prepared {
            engine: "docker",
            confined: Confined { command, restrict: None },
            supervised: false,
            bounds: None,
            input: Some(input),
            ended_early: Some(Box::new(move || {
                let _ = Command::new(docker)
                    .args(["rm", "--force", &name])
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            })),
            _folder: None,
            hint: None,
        }
    }))
}

fn has_image(docker: &Path, image: &str) -> Result<(), String> {
    let answer = Command::new(docker)
        .args(["image", "inspect", "--format", "{{.Id}}", image])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("docker does not start: {error}"))?;
    if answer.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&answer.stderr);
    let message = message.trim().lines().last().unwrap_or_default();
    Err(match message.contains("No such image") {
        true => format!("its image is not here (docker pull {image})"),
        false => format!("no daemon answers ({message})"),
    })
}

fn arguments(limits: &Limits, name: &str, language: Language) -> Vec<String> {
    let memory = limits.sandbox_memory;
    let mut words: Vec<String> =
        ["run", "--rm", "--interactive", "--init", "--pull=never", "--network=none", "--read-only"]
            .into_iter()
            .chain([
                "--cap-drop=ALL",
                "--security-opt=no-new-privileges",
                "--user=65534:65534",
                "--workdir=/tmp",
                "--env=HOME=/tmp",
            ])
            .map(str::to_owned)
            .collect();
    words.push(format!("--name={name}"));
    words.push(format!("--memory={memory}"));
    words.push(format!("--memory-swap={memory}"));
    words.push(format!("--pids-limit={}", limits.sandbox_processes));
    words.push("--tmpfs=/tmp:rw,nosuid,nodev,size=64m".into());
    words.extend([language.image(), "sh", "-c"].map(str::to_owned));
    words.push(language.script(limits.sandbox_time.as_secs() + 5));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_no_network_and_bounds() {
        let words = arguments(&Limits::default(), "flovyn-1", Language::Python);
        for word in ["--network=none", "--memory=268435456", "--pids-limit=128", "--read-only", "--user=65534:65534"] {
            let at = words.iter().position(|given| given == word);
            let image = words.iter().position(|given| given == "python:3.13-slim");
            assert!(at.is_some() && at < image, "{word} is an option of docker run: {words:?}");
        }
    }
}
