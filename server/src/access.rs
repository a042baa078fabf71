//! Who may call: tokens, and the org each speaks for. One identity per request; without one nothing is answered.

use flovyn_core::id::OrgId;
use std::collections::HashMap;
use std::sync::Arc;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// A caller of one org.
    Org(OrgId),
    /// The operator of the installation, who names the org of each call.
    Operator,
}

impl Identity {
    /// The org of a call that names one, or names none.
    pub fn org(self, named: Option<OrgId>) -> Option<OrgId> {
        match (self, named) {
            (Self::Org(own), None) => Some(own),
            (Self::Org(own), Some(named)) => (own == named).then_some(own),
            (Self::Operator, named) => Some(named.unwrap_or(OrgId::DEFAULT)),
        }
    }
}

/// The tokens that are known, by their BLAKE3 hash: none is kept in clear, and looking one up tells nothing by its time.
#[derive(Debug, Clone, Default)]
pub struct Access(Arc<HashMap<[u8; 32], Identity>>);

impl Access {
    /// Knows these tokens.
    pub fn of<'a>(tokens: impl IntoIterator<Item = (&'a str, Identity)>) -> Self {
        let hash = |token: &str| *blake3::hash(token.as_bytes()).as_bytes();
        Self(Arc::new(tokens.into_iter().map(|(token, identity)| (hash(token), identity)).collect()))
    }

    /// Who a bearer token stands for.
    pub fn identify(&self, token: &str) -> Option<Identity> {
        self.0.get(blake3::hash(token.as_bytes()).as_bytes()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_speaks_for_its_org_alone() {
        let (own, other) = (OrgId::fresh(), OrgId::fresh());
        let access = Access::of([("a", Identity::Org(own)), ("root", Identity::Operator)]);
        assert_eq!(access.identify("b"), None);
        let caller = access.identify("a").unwrap();
        assert_eq!((caller.org(None), caller.org(Some(own)), caller.org(Some(other))), (Some(own), Some(own), None));
        assert_eq!(access.identify("root").unwrap().org(Some(other)), Some(other));
    }
}
