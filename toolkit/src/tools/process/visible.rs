//! What a confined command sees of the machine where it may not see all of it: what programs need to run at all, and what
//! its environment names.

use std::path::PathBuf;

/// Folders of the system's programs.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"];

/// What programs read of the system's settings. None of it is a secret.
const SETTINGS: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "gitconfig",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "profile",
    "protocols",
    "python3",
    "resolv.conf",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// The paths of the system that a command has to see.
pub(super) fn system() -> impl Iterator<Item = PathBuf> {
    let settings = SETTINGS.iter().map(|name| PathBuf::from("/etc").join(name));
    PROGRAMS.iter().map(PathBuf::from).chain(settings).filter(|path| path.exists())
}

/// What tells of the machine, and not of its processes.
pub(super) fn machine() -> Vec<PathBuf> {
    let names = ["cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version"];
    names.iter().map(|name| PathBuf::from("/proc").join(name)).filter(|path| path.exists()).collect()
}
