//! The working directory as a capability: every file is opened beneath it. Where the kernel can do that (`openat2`), it
//! does.
//!
//! This keeps the file tools inside the directory. It is no boundary against a shell; `process` confines that.

use super::fault::Fault;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::sync::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// The longest path that is accepted, in bytes.
const LONGEST_PATH: usize = 4_096;
/// How many links are followed for the last name of a path at most, as in Linux.
const MOST_LINKS: usize = 40;

/// A directory that no path leads out of: neither by `..`, nor by links, nor by links that change while they are
/// followed.
#[derive(Clone)]
pub struct WorkingDirectory(Arc<Inner>);

struct Inner {
    dir: Dir,
    given: PathBuf,
    real: PathBuf,
}

/// A path relative to the working directory. It may still lead out by links; that is checked when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InnerPath {
    /// The path as the model has written it.
    pub requested: String,
    pub path: PathBuf,
}

/// The place where a file is written: its directory, which is held open, and its name in the directory.
pub(crate) struct FileLocation {
    dir: Dir,
    name: OsString,
    /// The path without links, relative to the working directory.
    pub path: PathBuf,
    requested: String,
}

impl WorkingDirectory {
    /// Opens a directory. If another directory is put in its place later, the opened one is still used.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let given = path.as_ref();
        let unusable = |error: io::Error| {
            let message = format!("the working directory {} cannot be opened: {error}", given.display());
            Error::new(Code::InvalidArgument, message).caused_by(error)
        };
        let given = std::path::absolute(given).map_err(unusable)?;
        let real = given.canonicalize().map_err(unusable)?;
        let dir = Dir::open_ambient_dir(&real, ambient_authority()).map_err(unusable)?;
        Ok(Self(Arc::new(Inner { dir, given, real })))
    }

    /// Its path without links.
    pub fn path(&self) -> &Path {
        &self.0.real
    }

    /// Checks a path of a model: it has to be relative, or absolute and inside the directory.
    pub(crate) fn inner_path(&self, requested: &str) -> Result<InnerPath, Fault> {
        let refuse =
            |why: &str| Err(Fault::for_model("invalid_path", format!("{requested:?} is no usable path: {why}.")));
        if requested.is_empty() {
            return refuse("it is empty");
        }
        if requested.len() > LONGEST_PATH {
            return refuse("it is longer than 4096 bytes");
        }
        if requested.contains('\0') {
            return refuse("it contains a zero byte");
        }
        if requested == "~" || requested.starts_with("~/") {
            return Err(Fault::outside(requested));
        }
        let path = Path::new(requested);
        let relative = match path.is_absolute() {
            false => path,
            true => match path.strip_prefix(&self.0.given).or_else(|_| path.strip_prefix(&self.0.real)) {
                Ok(relative) => relative,
                Err(_) => return Err(Fault::outside(requested)),
            },
        };
        let path = if relative.as_os_str().is_empty() { ".".into() } else { relative.to_owned() };
        Ok(InnerPath { requested: requested.to_owned(), path })
    }

    /// Whether an absolute path lies in the directory, going by its text.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.0.given) || path.starts_with(&self.0.real)
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// Opens a regular file for reading. A pipe or a device is refused without waiting for it.
    pub(crate) fn open_file(&self, inner_path: &InnerPath) -> Result<(File, Metadata), Fault> {
        open_regular(&self.0.dir, self.present(&inner_path.path).as_os_str(), &inner_path.requested)
    }

    /// The path with the names that are there. A name that is not there stands for one of the same normal form:
    /// systems write letters with marks in two ways, and macOS puts a narrow space into the names of screenshots, which
    /// models do not repeat. A path of which nothing else is found stays as it is.
    fn present<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        if self.0.dir.symlink_metadata(path).is_ok() {
            return path.into();
        }
        let mut found = PathBuf::new();
        let mut parts = path.components();
        for part in parts.by_ref() {
            let next = found.join(part);
            let is_there = !matches!(part, Component::Normal(_)) || self.0.dir.symlink_metadata(&next).is_ok();
            match if is_there { None } else { self.alike(&found, part.as_os_str()) } {
                Some(alike) => found.push(alike),
                None => {
                    found = next;
                    if !is_there {
                        break;
                    }
                }
            }
        }
        found.extend(parts);
        found.into()
    }

    /// The first name in a directory that has the same normal form.
    fn alike(&self, parent: &Path, name: &OsStr) -> Option<OsString> {
        let wanted = normal(name.to_str()?);
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let names = self.0.dir.read_dir(parent).ok()?.flatten().map(|entry| entry.file_name());
        names.filter(|found| found.to_str().is_some_and(|found| normal(found) == wanted)).min()
    }

    /// The path without links. The file that it names need not exist, but its directory has to.
    pub(crate) fn real(&self, inner_path: &InnerPath) -> Result<PathBuf, Fault> {
        self.resolve(inner_path, false)
    }

    /// Finds the place where a file is to be written. Links are followed inside the directory, and missing parent
    /// directories are made.
    pub(crate) fn locate(&self, inner_path: &InnerPath) -> Result<FileLocation, Fault> {
        let requested = &inner_path.requested;
        if requested.ends_with('/') || requested.ends_with("/.") {
            return Err(Fault::for_model("is_directory", format!("{requested:?} names a directory, not a file.")));
        }
        let path = self.resolve(inner_path, true)?;
        let Some(name) = path.file_name().map(OsStr::to_owned) else {
            return Err(Fault::for_model("is_directory", format!("{requested:?} is a directory.")));
        };
        let dir = self.0.dir.open_dir(parent_of(&path)).map_err(|error| Fault::of_file(requested, error))?;
        Ok(FileLocation { dir, name, path, requested: requested.clone() })
    }

    /// Follows the links of a path, also a link that is its last name. The system is asked only for the real paths of
    /// directories. For a file that is replaced at the same time, its answer would name the file that is gone.
    fn resolve(&self, inner_path: &InnerPath, makes_parents: bool) -> Result<PathBuf, Fault> {
        let (requested, dir) = (&inner_path.requested, &self.0.dir);
        let fault = |error| Fault::of_file(requested, error);
        let mut path = self.present(&inner_path.path).into_owned();
        for followed in 0..MOST_LINKS {
            let Some(Component::Normal(name)) = path.components().next_back() else {
                return Ok(plain(&dir.canonicalize(&path).map_err(fault)?));
            };
            let mut parent = dir.canonicalize(parent_of(&path));
            if let Err(error) = &parent
                && error.kind() == io::ErrorKind::NotFound
                && makes_parents
                && followed == 0
            {
                dir.create_dir_all(parent_of(&path)).map_err(fault)?;
                parent = dir.canonicalize(parent_of(&path));
            }
            let parent = plain(&parent.map_err(fault)?);
            let real = parent.join(name);
            match dir.symlink_metadata(&real) {
                Ok(found) if found.is_symlink() => path = parent.join(dir.read_link_contents(&real).map_err(fault)?),
                Ok(_) => return Ok(real),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(error)),
                Err(_) if followed == 0 => return Ok(real),
                Err(_) => {
                    return Err(Fault::for_model(
                        "dangling_link",
                        format!("{requested:?} is a link to a file that does not exist."),
                    ));
                }
            }
        }
        Err(Fault::for_model("link_loop", format!("{requested:?} is a link that leads back to itself.")))
    }

    /// Runs work while no other tool of this process changes the file. Each file has a lock of its own, which is in the
    /// table while somebody holds it or waits for it.
    pub(crate) fn alone<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        static BUSY: LazyLock<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);
        let key = self.0.real.join(path);
        let turn = BUSY.lock().entry(key.clone()).or_default().clone();
        let done = {
            let _mine = turn.lock();
            work()
        };
        let mut busy = BUSY.lock();
        // Two references are the table's and this one: no other call waits for the lock, so it can leave the table. The
        // table is locked here, so nobody can get a reference meanwhile.
        if Arc::strong_count(&turn) == 2 {
            busy.remove(&key);
        }
        done
    }
}

impl FileLocation {
    /// The content of the file, or none if there is no file. More than `limit` bytes are refused.
    pub(crate) fn read(&self, limit: u64) -> Result<Option<Vec<u8>>, Fault> {
        let (file, metadata) = match open_regular(&self.dir, &self.name, &self.requested) {
            Err(Fault::ForModel("not_found", _)) => return Ok(None),
            opened => opened?,
        };
        let too_large = || {
            let message = format!(
                "{:?} has more than {} and is not edited here; use bash.",
                self.requested,
                super::excerpt::size(limit)
            );
            Fault::ForModel("too_large", message)
        };
        if metadata.len() > limit {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| Fault::of_file(&self.requested, error))?;
        if bytes.len() as u64 > limit {
            return Err(too_large());
        }
        Ok(Some(bytes))
    }

    /// Replaces the file atomically: readers see the old bytes or the new ones. Its mode is kept. The new bytes are
    /// first written to a temporary file that is named after `call`, so that a later attempt of the same call removes
    /// what an earlier one has left.
    pub(crate) fn replace(&self, bytes: &[u8], call: &str) -> Result<(), Fault> {
        let fault = |error| Fault::of_file(&self.requested, error);
        let written = OsString::from(format!(".flovyn-{call}.tmp"));
        let _ = self.dir.remove_file(&written);
        let replaced = self.write_new(&written, bytes).and_then(|()| self.dir.rename(&written, &self.dir, &self.name));
        if let Err(error) = replaced {
            let _ = self.dir.remove_file(&written);
            return Err(fault(error));
        }
        // Not every file system can sync a directory, so an error is ignored. The bytes of the file are already safe.
        let _ = self.dir.open(".").and_then(|dir| dir.sync_all());
        Ok(())
    }

    /// Removes the file.
    pub(crate) fn remove(&self) -> Result<(), Fault> {
        self.dir.remove_file(&self.name).map_err(|error| Fault::of_file(&self.requested, error))
    }

    fn write_new(&self, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
        let mode = self.dir.symlink_metadata(&self.name).ok().map(|before| before.permissions());
        let mut file = self.dir.open_with(name, OpenOptions::new().write(true).create_new(true))?;
        if let Some(mode) = mode {
            file.set_permissions(mode)?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    }
}

/// The normal form of a name: letters with their marks as one character (NFC), and every space as a plain one.
pub(crate) fn normal(name: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    name.nfc().map(|letter| if letter != ' ' && is_space(letter) { ' ' } else { letter }).collect()
}

/// Whether a character looks like a space inside a line.
fn is_space(letter: char) -> bool {
    matches!(letter, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// The parent directory of a path.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A path without components that stand for the directory itself (`.`).
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Opens a regular file beneath a directory.
pub(crate) fn open_regular(dir: &Dir, path: &OsStr, requested: &str) -> Result<(File, Metadata), Fault> {
    let fault = |error| Fault::of_file(requested, error);
    // Without `NONBLOCK`, opening a pipe waits for somebody to open its other end.
    let flags = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits();
    let file = dir.open_with(path, OpenOptions::new().read(true).custom_flags(flags as i32)).map_err(fault)?;
    let metadata = file.metadata().map_err(fault)?;
    if metadata.is_dir() {
        return Err(Fault::for_model("is_directory", format!("{requested:?} is a directory; list it with find.")));
    }
    if !metadata.is_file() {
        return Err(Fault::for_model(
            "not_a_file",
            format!("{requested:?} is a pipe, a socket or a device, not a file."),
        ));
    }
    Ok((file, metadata))
}

/// The name of content: BLAKE3 in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
