//! Machines: computers of people that a server has let in by name. The worker of a machine serves the queue
//! `machine/NAME`, and no other.
//!
//! A machine asks to be let in with a name, and gets a short code for a person and a secret for itself. Somebody of an
//! org approves the code; then whoever has the secret gets the machine's key, once. Until then a pairing is of no org.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{KeyId, OrgId};
use crate::model::{NewKey, Scopes, TokenHash};
use std::time::Duration;
use uuid::Uuid;

/// What the names of machines' queues begin with.
pub const MACHINE_QUEUES: &str = "machine/";
/// How long a code can be approved, and what was approved can be collected.
pub const PAIRING_TIME: Duration = Duration::from_secs(600);
/// Pairings at a time that were not collected.
pub(crate) const MAX_PAIRINGS: i64 = 1_000;
/// The most bytes of what a machine says of itself.
pub const MAX_OFFERS: usize = 16 << 10;
/// The most characters of a name.
const MAX_NAME: usize = 63;
/// The letters of codes: none that makes a word, and none that looks like another.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// The letters of one code: 20^8 codes, of which at most 1,000 are open.
const CODE_LENGTH: usize = 8;

/// A machine of an org.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its org.
    pub org: OrgId,
    /// Its name, of which an org has one that is not revoked.
    pub name: String,
    /// Whose it is, as who approved it says.
    pub owner: String,
    /// Its key.
    pub key: KeyId,
    /// What it offers, as it says: JSON with `host`, `version`, `kinds`, `workspaces`, ….
    pub offers: String,
    /// When it was let in.
    pub created_at: Timestamp,
    /// When it last gave a sign of life.
    pub seen_at: Option<Timestamp>,
    /// When it, or its key, was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When its key ends; never if absent.
    pub expires_at: Option<Timestamp>,
}

impl Machine {
    /// Whether it may work at this time.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires| now < expires)
    }
}

/// A pairing that has begun.
#[derive(Debug, Clone)]
pub struct Pairing {
    /// For the person who approves it: `BCDF-GHJK`.
    pub code: String,
    /// For the machine alone.
    pub secret: String,
    /// When both end.
    pub expires_at: Timestamp,
}

/// Who approves a code, and as what.
#[derive(Debug, Clone)]
pub struct Approval {
    /// The code, as a person writes it.
    pub code: String,
    /// Another name than the machine asked for.
    pub name: Option<String>,
    /// Whose machine it is; the actor without it.
    pub owner: Option<String>,
    /// Who approves it, for the audit.
    pub actor: String,
    /// When the machine's key ends at the latest.
    pub not_after: Option<Timestamp>,
}

impl Approval {
    /// Errors: `InvalidArgument` for what is no name of a machine, and for an owner that no backend takes.
    pub(crate) fn check(&self) -> Result<()> {
        self.name.as_deref().map_or(Ok(()), check_name)?;
        self.owner.as_deref().map_or(Ok(()), |owner| super::check_name("the owner", owner))
    }
}

/// What was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// The machine's name.
    pub name: String,
    /// Whose it is.
    pub owner: String,
    /// What the computer said of itself.
    pub host: String,
}

/// The end of a pairing.
#[derive(Debug, Clone)]
pub struct Paired {
    /// The machine's org.
    pub org: OrgId,
    /// Its name.
    pub name: String,
    /// Its token, told this once.
    pub token: String,
}

/// The queue of a machine.
pub fn machine_queue(name: &str) -> String {
    format!("{MACHINE_QUEUES}{name}")
}

/// The machine whose queue this is. Empty for whatever machine its caller has.
pub fn machine_of(queue: &str) -> Option<&str> {
    queue.strip_prefix(MACHINE_QUEUES)
}

/// Refuses work of a run on one machine for another machine: `own` is the queue of the run, `queue` that of the work.
///
/// Errors: `PermissionDenied`.
pub fn check_task(own: &str, queue: &str) -> Result<()> {
    match (machine_of(own), machine_of(queue)) {
        (Some(own), Some(named)) if own != named => Err(Error::new(
            Code::PermissionDenied,
            format!(
                "a run of the machine {own:?} may have work done by {own:?} itself and by workers that are no machines, but not \
                 by {named:?}"
            ),
        )),
        _ => Ok(()),
    }
}

/// The code for what is wrong with a machine that was named, in words for who named it.
///
/// Errors: `NotFound`, with the machines there are.
pub fn choose<'m>(machines: &'m [Machine], named: &str, now: Timestamp) -> Result<&'m Machine> {
    let live: Vec<&Machine> = machines.iter().filter(|machine| machine.is_live(now)).collect();
    let found = match named {
        "" => live.first().filter(|_| live.len() == 1),
        _ => live.iter().find(|machine| machine.name == named),
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let seen = |machine: &&Machine| match machine.seen_at {
        Some(at) => format!("{} (last seen {at})", machine.name),
        None => format!("{} (never seen)", machine.name),
    };
    let there = match &live[..] {
        [] => "there is none; `flovyn daemon pair` on a computer begins to enrol it".to_owned(),
        live => format!("there are: {}", live.iter().map(seen).collect::<Vec<_>>().join(", ")),
    };
    let message = match named {
        "" if live.is_empty() => format!("no machine was named: {there}"),
        "" => {
            format!("no machine was named, and it could be any: {there}; name one, as in Local(\"{}\")", live[0].name)
        }
        _ => match machines.iter().rev().find(|machine| machine.name == named) {
            Some(_) => format!("the machine {named:?} was revoked: {there}"),
            None => format!("no machine has the name {named:?}: {there}"),
        },
    };
    Err(Error::new(Code::NotFound, message).with("machine", named))
}

/// The queue of a run for a machine that nobody has named, and that nobody finds where no server knows the machines.
///
/// Errors: `InvalidArgument`.
pub(crate) fn check_named(queue: &str) -> Result<()> {
    match machine_of(queue) {
        Some("") => Err(Error::new(
            Code::InvalidArgument,
            "no machine was named, and only a server knows which there are; name one, as in Local(\"laptop\")",
        )),
        _ => Ok(()),
    }
}

/// Refuses what is no name of a machine.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let begins = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if begins && name.len() <= MAX_NAME && name.bytes().all(fits) {
        return Ok(());
    }
    let name: String = name.chars().take(MAX_NAME).collect();
    Err(Error::new(
        Code::InvalidArgument,
        format!(
            "{name:?} cannot be the name of a machine; use 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`, the first a letter or digit"
        ),
    ))
}

/// What a computer says of itself to whoever approves: one short line without control characters.
pub(crate) fn shown_host(host: &str) -> String {
    host.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Refuses offers that are no JSON object, or too long.
pub(crate) fn check_offers(offers: &str) -> Result<()> {
    let is_object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(offers).is_ok();
    if offers.len() <= MAX_OFFERS && is_object {
        return Ok(());
    }
    let message = format!("what a machine offers is a JSON object of at most {MAX_OFFERS} bytes");
    Err(Error::new(Code::InvalidArgument, message))
}

/// A fresh code, without its hyphen.
pub(crate) fn fresh_code() -> String {
    // 16 random bytes have more than enough for eight letters; the bias of the remainder is far below one in 2^32.
    let mut random = crate::id::random().as_u128() ^ (crate::id::random().as_u128() << 40);
    let mut letter = || {
        let at = usize::try_from(random % 20).unwrap_or_default();
        random /= 20;
        char::from(LETTERS[at])
    };
    (0..CODE_LENGTH).map(|_| letter()).collect()
}

/// A code as people read it.
pub(crate) fn shown_code(code: &str) -> String {
    let half = code.len() / 2;
    format!("{}-{}", &code[..half], &code[half..])
}

/// A code as it is stored, however a person has written it.
pub(crate) fn stored_code(written: &str) -> String {
    written.chars().filter(char::is_ascii_alphabetic).take(2 * CODE_LENGTH).map(|c| c.to_ascii_uppercase()).collect()
}

/// A secret of a machine that waits.
pub(crate) fn fresh_secret() -> String {
    let random: [Uuid; 2] = [crate::id::random(), crate::id::random()];
    format!("fp_{}{}", random[0].simple(), random[1].simple())
}

/// The key of a machine.
pub(crate) fn key_of(
    org: OrgId,
    name: &str,
    token: &str,
    not_after: Option<Timestamp>,
    actor: String,
) -> Result<NewKey> {
    let scopes: Scopes = format!("worker:{}", machine_queue(name)).parse()?;
    let name = format!("machine {name}");
    Ok(NewKey { org, name, scopes, expires_in: None, not_after, hash: TokenHash::of(token), actor })
}

/// The error for a code that nobody has, or whose time is over.
pub(crate) fn no_code() -> Error {
    Error::new(
        Code::NotFound,
        "no machine waits with this code: it was mistyped, was approved before, or is older than 10 minutes; \
         `flovyn daemon pair` prints a new one",
    )
}

/// The error for a secret that nothing comes of.
pub(crate) fn no_secret() -> Error {
    Error::new(
        Code::NotFound,
        "no machine waits with this secret: it is older than 10 minutes, or its key was collected; pair again",
    )
}

/// The error for a name that another machine has.
pub(crate) fn name_taken(name: &str, owner: &str) -> Error {
    let message = format!(
        "the name {name:?} is taken by a machine of {owner}; approve this one under another (--name), or revoke that \
         one first: flovyn machines revoke {name}"
    );
    Error::new(Code::AlreadyExists, message).with("machine", name)
}

/// The error for too many that wait.
pub(crate) fn too_many() -> Error {
    let message = format!("{MAX_PAIRINGS} machines wait to be approved, and no more may; try again in some minutes");
    Error::new(Code::RateLimited, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_however_it_is_written() {
        let code = fresh_code();
        assert!(code.len() == 8 && code.bytes().all(|c| LETTERS.contains(&c)), "{code}");
        assert_ne!(code, fresh_code());
        let shown = shown_code(&code);
        for written in [shown.clone(), shown.to_lowercase(), shown.replace('-', " "), format!(" {code}\n")] {
            assert_eq!(stored_code(&written), code, "{written:?}");
        }
    }

    #[test]
    fn a_machine_has_a_plain_name() {
        for good in ["dev-laptop", "a", "Ann.local", "x_1", &"x".repeat(63)] {
            check_name(good).expect(good);
        }
        for wrong in ["", "-a", ".", "a/b", "a b", "ä", "a\n", &"x".repeat(64)] {
            assert_eq!(check_name(wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn a_machine_is_chosen_by_its_name_or_where_there_is_one() {
        let machine = |name: &str, revoked: Option<i64>| Machine {
            org: OrgId::DEFAULT,
            name: name.into(),
            owner: "ann".into(),
            key: KeyId::default(),
            offers: "{}".into(),
            created_at: Timestamp(0),
            seen_at: Some(Timestamp(1)),
            revoked_at: revoked.map(Timestamp),
            expires_at: None,
        };
        let all = [machine("old", Some(2)), machine("one", None), machine("two", None)];
        let chosen = |machines: &[Machine], named: &str| {
            choose(machines, named, Timestamp(9)).map(|machine| machine.name.clone()).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&all, "two").unwrap(), "two");
        assert_eq!(chosen(&all[..2], "").unwrap(), "one");
        let told = chosen(&all, "").unwrap_err();
        assert!(told.contains("one (last seen") && told.contains("two (last") && !told.contains("old"), "{told}");
        let told = chosen(&all, "old").unwrap_err();
        assert!(told.contains("revoked") && told.contains("one (last seen"), "{told}");
        assert!(chosen(&all, "three").unwrap_err().contains("\"three\""));
        assert!(chosen(&all[..1], "").unwrap_err().contains("flovyn daemon pair"));
        assert_eq!((machine_of("machine/a"), machine_of("machine/"), machine_of("gpu")), (Some("a"), Some(""), None));
    }
}
