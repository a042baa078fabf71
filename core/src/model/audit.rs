//! What was done to an organization, by whom: rows that nobody can change, take out or add between without its being seen.

use crate::clock::Timestamp;
use crate::id::OrgId;
use std::fmt;

/// One thing that was done to an org.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number; later ones have higher ones.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What, such as `key.revoked`.
    pub action: String,
    /// To what: an id or a name.
    pub subject: String,
    /// Seals it together with all rows before it; none on one that an older version wrote.
    pub seal: Option<Seal>,
}

/// A hash over what a row says and over the seal of the row before it in its org. Whoever has written one down knows later
/// that nothing up to it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal(pub [u8; 32]);

impl Seal {
    /// Seals a row that follows another one.
    pub fn of(org: OrgId, before: Option<Self>, at: Timestamp, said: [&str; 3]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("flovyn 2026-11 audit row");
        hasher.update(org.0.as_bytes()).update(&before.map_or([0; 32], |seal| seal.0)).update(&at.0.to_be_bytes());
        for text in said {
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
    /// Whether it follows a row, or is the first, and neither was changed.
    pub fn follows(&self, org: OrgId, before: Option<&Self>) -> bool {
        let before = before.and_then(|row| row.seal);
        match self.seal {
            Some(seal) => seal == Seal::of(org, before, self.at, [&self.actor, &self.action, &self.subject]),
            // Once rows are sealed all are.
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
