//! Who may call: tokens, the org each speaks for, and what it allows. One identity per request, made here alone.

use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::model::{ApiKey, Scope, Scopes, TokenHash, is_token};
use flovyn_core::storage::Storage;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a look at a key holds: a revoked one works so long at most.
const FRESH: Duration = Duration::from_secs(5);
/// Tokens that are remembered at a time.
const REMEMBERED: usize = 10_000;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Identity {
    org: Option<OrgId>,
    scopes: Arc<Scopes>,
}

impl Identity {
    /// A caller of one org who may do everything in it.
    pub fn of_org(org: OrgId) -> Self {
        Self { org: Some(org), scopes: Arc::new(Scopes::all()) }
    }

    /// The operator of the installation, who names the org of each call.
    pub fn operator() -> Self {
        Self { org: None, scopes: Arc::new(Scopes::all()) }
    }

    fn of_key(key: &ApiKey) -> Self {
        Self { org: Some(key.org), scopes: Arc::new(key.scopes.clone()) }
    }

    /// The org of a call that names one, or names none.
    pub fn org(&self, named: Option<OrgId>) -> Option<OrgId> {
        match (self.org, named) {
            (Some(own), None) => Some(own),
            (Some(own), Some(named)) => (own == named).then_some(own),
            (None, named) => Some(named.unwrap_or(OrgId::DEFAULT)),
        }
    }

    /// Its own org; the operator has none.
    pub(crate) fn own_org(&self) -> Option<OrgId> {
        self.org
    }

    /// What it may do.
    pub fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// Whether it may take work of a queue.
    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.scopes.allows(&Scope::Worker(Some(queue.to_owned())))
    }
}

/// The tokens that are known: some by themselves, others as keys of the store. By their hash: none is kept in clear, and
/// looking one up tells nothing by its time.
#[derive(Clone, Default)]
pub struct Access(Arc<Known>);

#[derive(Default)]
struct Known {
    tokens: HashMap<TokenHash, Identity>,
    keys: Option<Keys>,
}

struct Keys {
    storage: Arc<dyn Storage>,
    seen: Mutex<HashMap<TokenHash, (Instant, Option<ApiKey>)>>,
}

impl Access {
    /// Knows these tokens.
    pub fn of<'a>(tokens: impl IntoIterator<Item = (&'a str, Identity)>) -> Self {
        let tokens = tokens.into_iter().map(|(token, identity)| (TokenHash::of(token), identity)).collect();
        Self(Arc::new(Known { tokens, keys: None }))
    }

    /// Knows the keys of a store; one that is revoked stops working within five seconds.
    pub fn keys_of(storage: Arc<dyn Storage>) -> Self {
        let keys = Keys { storage, seen: Mutex::default() };
        Self(Arc::new(Known { tokens: HashMap::new(), keys: Some(keys) }))
    }

    /// Who a bearer token stands for; an error where the store could not be asked.
    pub async fn identify(&self, token: &str) -> Result<Option<Identity>> {
        let hash = TokenHash::of(token);
        if let Some(identity) = self.0.tokens.get(&hash) {
            return Ok(Some(identity.clone()));
        }
        let Some(keys) = self.0.keys.as_ref().filter(|_| is_token(token)) else { return Ok(None) };
        let key = keys.find(hash).await?;
        let now = keys.storage.clock().now();
        Ok(key.filter(|key| key.is_live(now)).map(|key| Identity::of_key(&key)))
    }
}

impl Keys {
    async fn find(&self, hash: TokenHash) -> Result<Option<ApiKey>> {
        if let Some((at, key)) = self.seen.lock().get(&hash)
            && at.elapsed() < FRESH
        {
            return Ok(key.clone());
        }
        let Some(directory) = self.storage.directory() else { return Ok(None) };
        let key = directory.key_of(hash).await?;
        let mut seen = self.seen.lock();
        if seen.len() >= REMEMBERED {
            seen.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if seen.len() < REMEMBERED {
            seen.insert(hash, (Instant::now(), key.clone()));
        }
        Ok(key)
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({} tokens, keys: {})", self.0.tokens.len(), self.0.keys.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::clock::{ManualClock, Timestamp};
    use flovyn_core::model::{NewKey, fresh_token};
    use flovyn_core::storage::Directory;
    use flovyn_core::storage::memory::MemoryStorage;

    #[tokio::test]
    async fn a_token_speaks_for_its_org_alone() {
        let (own, other) = (OrgId::fresh(), OrgId::fresh());
        let access = Access::of([("a", Identity::of_org(own)), ("root", Identity::operator())]);
        assert!(access.identify("b").await.unwrap().is_none());
        let caller = access.identify("a").await.unwrap().unwrap();
        assert_eq!((caller.org(None), caller.org(Some(own)), caller.org(Some(other))), (Some(own), Some(own), None));
        assert_eq!(access.identify("root").await.unwrap().unwrap().org(Some(other)), Some(other));
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_key_stops_working() {
        let clock = ManualClock::new(Timestamp(0));
        let storage = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
        let access = Access::keys_of(storage.clone());
        let (org, token) = (OrgId::fresh(), fresh_token());
        let hour = Duration::from_secs(3_600);
        let new = |token: &str| NewKey {
            org,
            name: "ci".into(),
            scopes: "worker:gpu".parse().unwrap(),
            expires_in: Some(hour),
            hash: TokenHash::of(token),
            actor: "a test".into(),
        };
        let key = storage.create_key(new(&token)).await.unwrap();
        let caller = access.identify(&token).await.unwrap().unwrap();
        assert!(caller.org(None) == Some(org) && caller.serves("gpu") && !caller.serves("default"));
        assert!(access.identify(&fresh_token()).await.unwrap().is_none());
        storage.revoke_key(org, key.id, "a test").await.unwrap();
        tokio::time::advance(FRESH).await;
        assert!(access.identify(&token).await.unwrap().is_none());
        // An expired one needs no look at the store.
        let short = fresh_token();
        storage.create_key(new(&short)).await.unwrap();
        assert!(access.identify(&short).await.unwrap().is_some());
        clock.advance(hour);
        assert!(access.identify(&short).await.unwrap().is_none());
    }
}
