//! Organizations, their keys, what each key allows, and the form of its token.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, KeyId, OrgId};
use crate::model::MAX_ID;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    /// Its id.
    pub id: OrgId,
    /// Its slug: lower-case letters, digits and `-`. It is unique, and people write it instead of the id.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// How much its callers may ask for.
    #[serde(default)]
    pub limits: OrgLimits,
}

/// How much all callers of an organization together may ask for, whatever keys they use. Where a limit is none, only
/// the limits of each key apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrgLimits {
    /// Starts and forks a second.
    pub create: Option<u32>,
    /// Signals a second.
    pub signal: Option<u32>,
    /// Polls for work a second.
    pub poll: Option<u32>,
    /// Streams of events at a time.
    pub streams: Option<u32>,
}

/// One thing that a key allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `exec:read`: look at runs and everything that belongs to them.
    Read,
    /// `exec:write`: start, cancel, resume, fork and decide.
    Write,
    /// `exec:signal`: send signals.
    Signal,
    /// `worker`: take work of every queue. `worker:QUEUE`: take work of that queue only.
    Worker(Option<String>),
    /// `keys`: make, list and revoke keys of the org.
    Keys,
    /// `audit:read`: read the log of what was done to keys, and of the decisions that were made.
    Audit,
    /// `run:ID:read`: look at one run, and at all below it. `run:ID:speak`: send them signals, too.
    Run {
        /// The run.
        run: ExecutionId,
        /// Whether signals may be sent.
        speaks: bool,
    },
    /// `user:NAME:read`: look at the runs of one user, and at all below them. `user:NAME:speak`: send them signals, too. A run is
    /// a user's whose metadata says so ([`USER`]).
    User {
        /// The user.
        user: String,
        /// Whether signals may be sent.
        speaks: bool,
    },
}

/// The metadata of a run that names the user it is for.
pub const USER: &str = "user";

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("exec:read"),
            Self::Write => f.write_str("exec:write"),
            Self::Signal => f.write_str("exec:signal"),
            Self::Worker(None) => f.write_str("worker"),
            Self::Worker(Some(queue)) => write!(f, "worker:{queue}"),
            Self::Keys => f.write_str("keys"),
            Self::Audit => f.write_str("audit:read"),
            Self::Run { run, speaks } => write!(f, "run:{run}:{}", reach(*speaks)),
            Self::User { user, speaks } => write!(f, "user:{user}:{}", reach(*speaks)),
        }
    }
}

fn reach(speaks: bool) -> &'static str {
    if speaks { "speak" } else { "read" }
}

impl Scope {
    /// The scope of one run or of one user that a word says.
    fn narrow(word: &str) -> Option<Self> {
        let (rest, reach) = word.rsplit_once(':')?;
        let speaks = match reach {
            "read" => false,
            "speak" => true,
            _ => return None,
        };
        match rest.split_once(':')? {
            ("run", id) => Some(Self::Run { run: ExecutionId(id.parse().ok()?), speaks }),
            ("user", name) if is_user(name) => Some(Self::User { user: name.to_owned(), speaks }),
            _ => None,
        }
    }
}

/// Whether a scope can name a user so: 1 to 200 characters that can be seen, none of them a comma, which ends a scope.
pub fn is_user(name: &str) -> bool {
    let is_apart = |character: char| character == ',' || character.is_whitespace() || character.is_control();
    (1..=MAX_ID).contains(&name.chars().count()) && !name.contains(is_apart)
}

/// What a key allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Everything within one org.
    pub fn all() -> Self {
        let plain = [Scope::Read, Scope::Write, Scope::Signal, Scope::Worker(None), Scope::Keys, Scope::Audit];
        Self(plain.into())
    }

    /// Whether it allows this.
    pub fn allows(&self, scope: &Scope) -> bool {
        let has = |scope: &Scope| self.0.contains(scope);
        let signals = || has(&Scope::Signal) || has(&Scope::Write);
        has(scope)
            || match scope {
                Scope::Worker(Some(_)) => has(&Scope::Worker(None)),
                Scope::Run { run, speaks } => {
                    has(&Scope::Read) && (!speaks || signals()) || has(&Scope::Run { run: *run, speaks: true })
                }
                Scope::User { user, speaks } => {
                    has(&Scope::Read) && (!speaks || signals())
                        || has(&Scope::User { user: user.clone(), speaks: true })
                }
                _ => false,
            }
    }

    /// What it allows of one run or of one user alone: whoever has no other scope sees nothing else.
    pub fn narrow(&self) -> impl Iterator<Item = &Scope> {
        self.0.iter().filter(|scope| matches!(scope, Scope::Run { .. } | Scope::User { .. }))
    }

    /// The users whose runs it allows to look at.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|scope| match scope {
            Scope::User { user, .. } => Some(user.as_str()),
            _ => None,
        })
    }

    /// Whether all that it allows is of one run or of one user: such keys are made in numbers, and live for minutes.
    pub fn is_narrow(&self) -> bool {
        !self.0.is_empty() && self.narrow().count() == self.0.len()
    }

    /// Whether it allows all that another allows.
    pub fn cover(&self, other: &Self) -> bool {
        other.0.iter().all(|scope| self.allows(scope))
    }

    /// The queue whose work it allows to take, where that is all that it allows.
    pub fn only_queue(&self) -> Option<&str> {
        match self.0.first() {
            Some(Scope::Worker(queue)) if self.0.len() == 1 => queue.as_deref(),
            _ => None,
        }
    }

    /// Whether it allows taking work of at least one queue.
    pub fn serves(&self) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::Worker(_)))
    }
}

impl From<Scope> for Scopes {
    fn from(scope: Scope) -> Self {
        Self([scope].into())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Scope::to_string).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Scopes {
    type Err = Error;

    /// Reads scopes and roles. The role `viewer` reads, `member` also writes and signals, and `admin` may do
    /// everything.
    fn from_str(text: &str) -> Result<Self> {
        let mut scopes = BTreeSet::new();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            match word {
                "viewer" => scopes.extend([Scope::Read]),
                "member" => scopes.extend([Scope::Read, Scope::Write, Scope::Signal]),
                "admin" => scopes.extend(Self::all().0),
                "exec:read" => scopes.extend([Scope::Read]),
                "exec:write" => scopes.extend([Scope::Write]),
                "exec:signal" => scopes.extend([Scope::Signal]),
                "keys" => scopes.extend([Scope::Keys]),
                "audit:read" => scopes.extend([Scope::Audit]),
                "worker" => scopes.extend([Scope::Worker(None)]),
                _ => match word.strip_prefix("worker:") {
                    Some(queue) if !queue.is_empty() => scopes.extend([Scope::Worker(Some(queue.to_owned()))]),
                    _ => scopes.extend([Scope::narrow(word).ok_or_else(|| unknown_scope(word))?]),
                },
            };
        }
        if scopes.is_empty() {
            return Err(unknown_scope(text));
        }
        Ok(Self(scopes))
    }
}

fn unknown_scope(word: &str) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!(
            "{word:?} is no scope; give roles (viewer, member, worker, admin) or scopes (exec:read, exec:write, \
             exec:signal, worker, worker:QUEUE, keys, audit:read, run:ID:read, run:ID:speak, user:NAME:read, user:NAME:speak)"
        ),
    )
}

/// A key as the store keeps it. The token itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its org.
    pub org: OrgId,
    /// Its id.
    pub id: KeyId,
    /// Its name for people.
    pub name: String,
    /// What it allows.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working; never if absent.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Whether it works at this time.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires| now < expires)
    }
}

/// A key to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its org.
    pub org: OrgId,
    /// Its name for people.
    pub name: String,
    /// What it allows.
    pub scopes: Scopes,
    /// How long it works; for ever if absent.
    pub expires_in: Option<std::time::Duration>,
    /// When it ends at the latest, by the store's clock. It must not outlive the key with which it is made.
    pub not_after: Option<Timestamp>,
    /// The hash of its token.
    pub hash: TokenHash,
    /// Who makes it, for the audit.
    pub actor: String,
}

impl NewKey {
    /// When it ends if it is made now.
    pub(crate) fn expires_at(&self, now: Timestamp) -> Option<Timestamp> {
        let asked = self.expires_in.map(|time| now.after(time));
        asked.into_iter().chain(self.not_after).min()
    }
}

/// The hash of a token (BLAKE3), which the store keeps instead of the token. Nobody can make the token from it. The
/// lookup compares hashes, so the time that it takes tells an attacker nothing about a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }
}

/// A fresh token: `fk_`, two random UUIDs (256 bits, of which 12 are fixed), and eight characters of a checksum. The
/// checksum lets a server refuse a typing error, or the random texts of a scanner, without asking a store.
pub fn fresh_token() -> String {
    let secret = format!("{}{}", crate::id::random().simple(), crate::id::random().simple());
    format!("fk_{secret}_{}", checksum(&secret))
}

/// Whether a text has the form of a token of [`fresh_token`], with the right checksum.
pub fn is_token(text: &str) -> bool {
    let parts = text.strip_prefix("fk_").and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(secret, check)| checksum(secret) == check)
}

fn checksum(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_sets_of_scopes() {
        let scopes = |text: &str| text.parse::<Scopes>().unwrap();
        assert!(scopes("member").allows(&Scope::Signal) && !scopes("member").allows(&Scope::Keys));
        assert_eq!(scopes("viewer,exec:signal").to_string(), "exec:read exec:signal");
        assert_eq!(scopes(&Scopes::all().to_string()), Scopes::all());
        let gpu = Scope::Worker(Some("gpu".into()));
        assert!(scopes("worker").allows(&gpu) && scopes("worker:gpu").allows(&gpu));
        assert!(!scopes("worker:gpu").allows(&Scope::Worker(None)) && scopes("worker:gpu").serves());
        assert_eq!((scopes("worker:gpu").only_queue(), scopes("worker").only_queue()), (Some("gpu"), None));
        assert_eq!((scopes("worker:gpu keys").only_queue(), scopes("viewer").only_queue()), (None, None));
        assert!(!scopes("worker:cpu").allows(&gpu) && !scopes("member").serves());
        assert!(scopes("admin").cover(&Scopes::all()) && scopes("worker keys").cover(&scopes("worker:gpu")));
        assert!(!scopes("worker:gpu").cover(&scopes("worker")) && !scopes("keys").cover(&scopes("viewer keys")));
        for wrong in ["", "root", "worker:", "exec:*"] {
            assert_eq!(wrong.parse::<Scopes>().unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn a_scope_may_be_of_one_run_or_of_one_user() {
        let scopes = |text: &str| text.parse::<Scopes>().unwrap();
        let run = "018f4d5e-0000-7000-8000-000000000001";
        let (reads, speaks) = (format!("run:{run}:read"), format!("run:{run}:speak"));
        for text in [&reads, &speaks, "user:ann@example.com:read", "user:realm:ann:speak"] {
            assert_eq!(scopes(text).to_string(), *text);
            assert!(
                scopes(text).is_narrow() && !scopes(text).allows(&Scope::Read) && scopes("member").cover(&scopes(text))
            );
        }
        assert!(scopes(&speaks).cover(&scopes(&reads)) && !scopes(&reads).cover(&scopes(&speaks)));
        assert!(scopes("viewer").cover(&scopes("user:ann:read")) && !scopes("viewer").cover(&scopes("user:ann:speak")));
        assert!(
            !scopes("user:ann:speak").cover(&scopes("user:bob:read")) && !scopes("exec:signal").cover(&scopes(&speaks))
        );
        assert!(!scopes(&format!("{reads} viewer")).is_narrow() && !Scopes::default().is_narrow());
        for wrong in
            ["run:1:read", "run:read", "user::read", "user:ann", "user:ann:write", "run:*:read", "user:a\u{7}:read"]
        {
            assert_eq!(wrong.parse::<Scopes>().unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn tokens_are_told_from_other_texts() {
        let token = fresh_token();
        assert!(is_token(&token) && token != fresh_token());
        assert!(!is_token(&token.replace("fk_", "fk_0")) && !is_token("fk_") && !is_token("fd_1_2"));
        assert_ne!(TokenHash::of(&token), TokenHash::of(&token[1..]));
    }
}
