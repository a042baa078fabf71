//! Images of the clipboard. A terminal pastes text alone, so a program of the desktop is asked for an image, which becomes a file that
//! the message names.

use super::attachments::{MAX_IMAGE, mime};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flovyn_toolkit::config::home;
use flovyn_toolkit::tools::excerpt;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// How long a program may take: those of Windows need a while to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// The images that are kept, newest first, for lines of the history that name them.
const MOST_KEPT: usize = 200;
/// What makes Windows give the image of its clipboard.
const POWERSHELL: &str = "Add-Type -AssemblyName System.Windows.Forms,System.Drawing; \
    $image = [Windows.Forms.Clipboard]::GetImage(); if ($image) { $out = New-Object IO.MemoryStream; \
    $image.Save($out, [Drawing.Imaging.ImageFormat]::Png); [Convert]::ToBase64String($out.ToArray()) }";

/// A program that knows the clipboard.
struct Program {
    name: &'static str,
    /// What makes it list the kinds of what is there; none where it has images in one kind alone.
    list: Option<&'static [&'static str]>,
    /// What makes it write an image; the kind stands in place of `KIND`.
    read: &'static [&'static str],
    form: Form,
}

/// How a program writes an image.
#[derive(Debug, Clone, Copy)]
enum Form {
    Bytes,
    Base64,
    /// As AppleScript shows data: `«data PNGf89504E47…»`.
    AppleScript,
}

/// The programs, in the order in which they are asked.
const PROGRAMS: [Program; 5] = [
    Program {
        name: "wl-paste",
        list: Some(&["--list-types"]),
        read: &["--no-newline", "--type", "KIND"],
        form: Form::Bytes,
    },
    Program {
        name: "xclip",
        list: Some(&["-selection", "clipboard", "-t", "TARGETS", "-o"]),
        read: &["-selection", "clipboard", "-t", "KIND", "-o"],
        form: Form::Bytes,
    },
    Program { name: "pngpaste", list: None, read: &["-"], form: Form::Bytes },
    Program {
        name: "osascript", list: None, read: &["-e", "the clipboard as «class PNGf»"], form: Form::AppleScript
    },
    Program {
        name: "powershell.exe",
        list: None,
        read: &["-NoProfile", "-NonInteractive", "-Sta", "-Command", POWERSHELL],
        form: Form::Base64,
    },
];

/// The kinds of images that models see, with the ends of their files.
const KINDS: [(&str, &str); 4] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/webp", "webp"), ("image/gif", "gif")];

/// An image that was in the clipboard.
#[derive(Debug)]
pub(super) struct ClipboardImage {
    /// The file that has it now.
    pub path: PathBuf,
    /// Its bytes.
    pub size: u64,
}

/// Takes the image that is in the clipboard.
///
/// # Errors
///
/// There is none, or no program can tell; the text says what to do.
pub(super) async fn image() -> Result<ClipboardImage, String> {
    let (mut has_program, mut fault) = (false, None);
    let asked = async {
        for program in &PROGRAMS {
            let Some(path) = on_path(program.name) else { continue };
            has_program = true;
            match program.image(&path).await {
                Ok(Some(image)) => return Some(image),
                Ok(None) => {}
                Err(error) => fault = Some(error),
            }
        }
        None
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Some((bytes, end))) => keep(&bytes, end).map_err(|error| format!("the image could not be kept: {error}")),
        Err(_) => Err(format!("the clipboard has not answered within {} s", PATIENCE.as_secs())),
        Ok(None) => Err(match (fault, has_program) {
            (Some(fault), _) => fault,
            (None, true) => "the clipboard has no image; text is pasted as your terminal does it".to_owned(),
            (None, false) => {
                "an image is read from the clipboard by wl-paste (package wl-clipboard), xclip or pngpaste, and \
                none of them is installed; a path in the line gives an image too"
                    .to_owned()
            }
        }),
    }
}

impl Program {
    /// The image with the end of its file; none where there is none, or where the program has no desktop to ask.
    async fn image(&self, path: &Path) -> Result<Option<(Vec<u8>, &'static str)>, String> {
        let kind = match self.list {
            None => Some(KINDS[0]),
            Some(list) => {
                let listed = self.output(path, list).await?.unwrap_or_default();
                let listed = String::from_utf8_lossy(&listed).into_owned();
                KINDS.into_iter().find(|(kind, _)| listed.lines().any(|line| line.trim() == *kind))
            }
        };
        let Some((kind, end)) = kind else { return Ok(None) };
        let args: Vec<_> = self.read.iter().map(|arg| if *arg == "KIND" { kind } else { arg }).collect();
        let Some(written) = self.output(path, &args).await? else { return Ok(None) };
        let bytes = self.form.bytes(written).filter(|bytes| !bytes.is_empty());
        match bytes {
            Some(bytes) if bytes.len() as u64 > MAX_IMAGE => Err(too_long()),
            bytes => Ok(bytes.map(|bytes| (bytes, end))),
        }
    }

    /// What the program writes; none where it fails, as those do whose desktop is not there.
    async fn output(&self, path: &Path, args: &[&str]) -> Result<Option<Vec<u8>>, String> {
        let failed = |error: std::io::Error| format!("{} could not be used: {error}", self.name);
        let mut command = Command::new(path);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let Some(out) = child.stdout.take() else { return Ok(None) };
        let most = match self.form {
            Form::Bytes => MAX_IMAGE,
            // As text they are up to twice as long.
            Form::Base64 | Form::AppleScript => 2 * MAX_IMAGE + 1_024,
        };
        let mut bytes = Vec::new();
        out.take(most + 1).read_to_end(&mut bytes).await.map_err(failed)?;
        if bytes.len() as u64 > most {
            return Err(too_long());
        }
        let status = child.wait().await.map_err(failed)?;
        Ok(status.success().then_some(bytes))
    }
}

fn too_long() -> String {
    format!("the image of the clipboard is too large: it may have {}", excerpt::size(MAX_IMAGE))
}

impl Form {
    fn bytes(self, written: Vec<u8>) -> Option<Vec<u8>> {
        let text = || String::from_utf8(written.clone()).ok();
        match self {
            Self::Bytes => Some(written),
            Self::Base64 => STANDARD.decode(text()?.trim()).ok(),
            Self::AppleScript => {
                let text = text()?;
                let digits = text.trim().strip_prefix("«data PNGf")?.strip_suffix('»')?;
                let byte = |place: usize| u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok();
                (0..digits.len() / 2).map(byte).collect()
            }
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Writes an image into the folder of the user, and removes the oldest where there are too many.
fn keep(bytes: &[u8], end: &str) -> std::io::Result<ClipboardImage> {
    let folder = home().map_err(|error| std::io::Error::other(error.message().to_owned()))?.join("images");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let mut kept: Vec<_> = std::fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| mime(path).is_some())
        .map(|path| (path.metadata().and_then(|metadata| metadata.modified()).ok(), path))
        .collect();
    kept.sort_unstable();
    for (_, old) in kept.iter().take((kept.len() + 1).saturating_sub(MOST_KEPT)) {
        // Another chat may have removed it.
        let _ = std::fs::remove_file(old);
    }
    let path = folder.join(format!("{}.{end}", uuid::Uuid::new_v4().simple()));
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(bytes)?;
    Ok(ClipboardImage { path, size: bytes.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_an_image_is_read() {
        assert_eq!(Form::Bytes.bytes(vec![1, 2]), Some(vec![1, 2]));
        assert_eq!(Form::Base64.bytes(b"iVBO\r\n".to_vec()), Some(vec![0x89, b'P', b'N']));
        let script = "«data PNGf89504E47»\n".as_bytes().to_vec();
        assert_eq!(Form::AppleScript.bytes(script), Some(vec![0x89, b'P', b'N', b'G']));
        for wrong in ["", "«data PNGfxx»", "«data TIFF00»", "日本"] {
            assert_eq!(Form::AppleScript.bytes(wrong.as_bytes().to_vec()), None, "{wrong}");
        }
    }
}
