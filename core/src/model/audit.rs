//! The audit log of an organization: what was done, and by whom. Each row is sealed together with the rows before it,
//! so it can be seen when somebody has changed a row, taken one out or put one between others.

use crate::clock::Timestamp;
use crate::id::OrgId;
use std::fmt;

/// One thing that was done to an org.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number. Later rows have higher ones.
    pub number: u64,
    /// When it was done.
    pub at: Timestamp,
    /// Who has done it.
    pub actor: String,
    /// What was done, such as `key.revoked`.
    pub action: String,
    /// The id or the name of what it was done to.
    pub subject: String,
    /// Seals the row together with all rows before it. None on a row that an older version has written.
    pub seal: Option<Seal>,
}

/// A hash over the content of a row and the seal of the row before it in its org. Whoever has written down a seal can
/// check later that no row up to that one was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal(pub [u8; 32]);

impl Seal {
    /// The seal of a row. `before` is the seal of the row before it; `content` is its actor, action and subject.
    pub fn of(org: OrgId, before: Option<Self>, at: Timestamp, content: [&str; 3]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("flovyn 2026-11 audit row");
        hasher.update(org.0.as_bytes()).update(&before.map_or([0; 32], |seal| seal.0)).update(&at.0.to_be_bytes());
        // The length goes before each text: otherwise "ab", "c" would have the seal of "a", "bc".
        for text in content {
            hasher.update(&(text.len() as u64).to_be_bytes()).update(text.as_bytes());
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl AuditRow {
    /// Whether it comes right after the row `before`, or is the first row, and its content was not changed.
    pub fn follows(&self, org: OrgId, before: Option<&Self>) -> bool {
        let before = before.and_then(|row| row.seal);
        match self.seal {
            Some(seal) => seal == Seal::of(org, before, self.at, [&self.actor, &self.action, &self.subject]),
            // A row without a seal is older than every sealed row, so it cannot follow one.
            None => before.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64, before: Option<&AuditRow>, subject: &str) -> AuditRow {
        let (at, before) = (Timestamp(number as i64), before.and_then(|row| row.seal));
        let (actor, action) = ("ann".to_owned(), "key.revoked".to_owned());
        let seal = Some(Seal::of(OrgId::DEFAULT, before, at, [&actor, &action, subject]));
        AuditRow { number, at, actor, action, subject: subject.to_owned(), seal }
    }

    #[test]
    fn what_is_changed_taken_out_or_put_between_is_seen() {
        let org = OrgId::DEFAULT;
        let first = row(1, None, "a");
        let second = row(2, Some(&first), "b");
        let third = row(3, Some(&second), "c");
        assert!(first.follows(org, None) && second.follows(org, Some(&first)) && third.follows(org, Some(&second)));
        assert!(!third.follows(org, Some(&first)) && !second.follows(org, None), "one was taken out");
        assert!(!second.follows(OrgId::fresh(), Some(&first)), "it is another org's");
        let changed = AuditRow { actor: "annk".into(), action: "ey.revoked".into(), ..second.clone() };
        assert!(!changed.follows(org, Some(&first)));
        let unsealed = AuditRow { seal: None, ..second.clone() };
        assert!(!unsealed.follows(org, Some(&first)), "it was put between");
        // Rows of an older version have none, until the first that has.
        let old = AuditRow { seal: None, ..first };
        let (also_old, new) = (AuditRow { seal: None, ..second }, row(3, Some(&old), "c"));
        assert!(old.follows(org, None) && also_old.follows(org, Some(&old)) && new.follows(org, Some(&also_old)));
    }
}
