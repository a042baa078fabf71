//! Authentication: tokens, their org and their scopes. Each request gets one identity, made here alone.

use axum::http::{HeaderMap, header};
use flovyn_core::clock::Timestamp;
use flovyn_core::error::Result;
use flovyn_core::id::{KeyId, OrgId};
use flovyn_core::model::{ApiKey, Scope, Scopes, TokenHash, is_token};
use flovyn_core::storage::Storage;
use flovyn_core::storage::machines::machine_of;
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// How long a key is cached: a revoked one works that long at most.
pub(crate) const KEY_TTL: Duration = Duration::from_secs(5);
/// How often, at most, the refusal of a key is recorded in the audit.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);
/// Tokens that are cached at a time.
const MAX_CACHED: usize = 10_000;

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Identity {
    org: Option<OrgId>,
    scopes: Arc<Scopes>,
    name: Arc<str>,
    /// By which the store knows it; none where the server itself knows the token.
    key: Option<TokenHash>,
    expires_at: Option<Timestamp>,
}

impl Identity {
    /// A caller of one org who may do everything in it.
    pub fn of_org(org: OrgId) -> Self {
        Self {
            org: Some(org),
            scopes: Arc::new(Scopes::all()),
            name: "the server's token".into(),
            key: None,
            expires_at: None,
        }
    }

    /// The operator of the installation, who names the org of each call.
    pub fn operator() -> Self {
        Self {
            org: None,
            scopes: Arc::new(Scopes::all()),
            name: "the operator's token".into(),
            key: None,
            expires_at: None,
        }
    }

    fn of_key(key: &ApiKey, hash: TokenHash) -> Self {
        let (scopes, name) = (Arc::new(key.scopes.clone()), format!("key {}", key.id).into());
        Self { org: Some(key.org), scopes, name, key: Some(hash), expires_at: key.expires_at }
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

    /// Its name, for the audit and for limits.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its scopes.
    pub fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// When it expires; none for never.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The machine whose key it is.
    pub(crate) fn machine(&self) -> Option<&str> {
        machine_of(self.scopes.only_queue()?).filter(|name| !name.is_empty())
    }

    /// Whether it may take work of a queue.
    pub fn serves(&self, queue: &str) -> bool {
        self.scopes.allows(&Scope::Worker(Some(queue.to_owned())))
    }
}

/// The known tokens: fixed ones, and the keys of the store. Both are looked up by hash, so that no token is kept in clear, and
/// the time of a look-up reveals nothing.
#[derive(Clone, Default)]
pub struct Access(Arc<Credentials>);

#[derive(Default)]
struct Credentials {
    tokens: HashMap<TokenHash, Identity>,
    keys: Option<Keys>,
}

struct Keys {
    storage: Arc<dyn Storage>,
    seen: Mutex<HashMap<TokenHash, (Instant, Option<ApiKey>)>>,
    /// When the refusal of a key was last recorded in the audit.
    refused: Mutex<HashMap<KeyId, Instant>>,
}

impl Access {
    /// Knows these tokens.
    pub fn of<'a>(tokens: impl IntoIterator<Item = (&'a str, Identity)>) -> Self {
        let tokens = tokens.into_iter().map(|(token, identity)| (TokenHash::of(token), identity)).collect();
        Self(Arc::new(Credentials { tokens, keys: None }))
    }

    /// Knows the keys of a store; one that is revoked stops working within five seconds.
    pub fn keys_of(storage: Arc<dyn Storage>) -> Self {
        Self::of([]).and_keys_of(storage)
    }

    /// Knows these tokens, and the keys of a store.
    #[must_use]
    pub fn and_keys_of(self, storage: Arc<dyn Storage>) -> Self {
        let keys = Keys { storage, seen: Mutex::default(), refused: Mutex::default() };
        Self(Arc::new(Credentials { tokens: self.0.tokens.clone(), keys: Some(keys) }))
    }

    /// Looks a key up again when it is next sent.
    pub(crate) fn forget(&self, key: KeyId) {
        if let Some(keys) = &self.0.keys {
            keys.seen.lock().retain(|_, (_, seen)| seen.as_ref().is_none_or(|seen| seen.id != key));
        }
    }

    /// Whether a token is fixed, or was found when it was last looked up.
    pub(crate) fn is_cached_valid(&self, token: &str) -> bool {
        let hash = TokenHash::of(token);
        self.0.tokens.contains_key(&hash) || self.0.keys.as_ref().is_some_and(|keys| keys.is_cached_valid(&hash))
    }

    /// The identity of a bearer token; an error where the store could not be read.
    pub async fn identify(&self, token: &str) -> Result<Option<Identity>> {
        let hash = TokenHash::of(token);
        if let Some(identity) = self.0.tokens.get(&hash) {
            return Ok(Some(identity.clone()));
        }
        let Some(keys) = self.0.keys.as_ref().filter(|_| is_token(token)) else { return Ok(None) };
        let Some(key) = keys.find(hash).await? else { return Ok(None) };
        if key.is_live(keys.storage.clock().now()) {
            return Ok(Some(Identity::of_key(&key, hash)));
        }
        keys.note_refusal(&key).await;
        Ok(None)
    }

    /// Resolves when the caller's key is revoked or expires: streams that it has opened have to end. For fixed tokens it
    /// never resolves.
    pub(crate) fn until_revoked(&self, who: &Identity) -> impl Future<Output = ()> + Send + 'static {
        let (credentials, key) = (self.0.clone(), who.key);
        async move {
            let (Some(hash), Some(keys)) = (key, &credentials.keys) else { return pending().await };
            loop {
                tokio::time::sleep(KEY_TTL).await;
                // The store is asked again later.
                let Ok(key) = keys.find(hash).await else { continue };
                if !key.is_some_and(|key| key.is_live(keys.storage.clock().now())) {
                    return;
                }
            }
        }
    }
}

/// The token of a request's headers.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl Keys {
    fn is_cached_valid(&self, hash: &TokenHash) -> bool {
        matches!(self.seen.lock().get(hash), Some((_, Some(_))))
    }

    async fn find(&self, hash: TokenHash) -> Result<Option<ApiKey>> {
        if let Some((at, key)) = self.seen.lock().get(&hash)
            && at.elapsed() < KEY_TTL
        {
            return Ok(key.clone());
        }
        let key = self.storage.server_side()?.key_of(hash).await?;
        let mut seen = self.seen.lock();
        if seen.len() >= MAX_CACHED {
            seen.retain(|_, (at, _)| at.elapsed() < KEY_TTL);
        }
        if seen.len() < MAX_CACHED {
            seen.insert(hash, (Instant::now(), key.clone()));
        }
        Ok(key)
    }

    /// Records in the audit, at most once a minute, that a revoked or expired key was used.
    async fn note_refusal(&self, key: &ApiKey) {
        {
            let mut refused = self.refused.lock();
            refused.retain(|_, at| at.elapsed() < REFUSAL_INTERVAL);
            if refused.len() >= MAX_CACHED || refused.insert(key.id, Instant::now()).is_some() {
                return;
            }
        }
        let Ok(directory) = self.storage.server_side() else { return };
        let (actor, why) = (format!("key {}", key.id), if key.revoked_at.is_some() { "revoked" } else { "expired" });
        if let Err(error) = directory.record(key.org, &actor, "key.refused", why).await {
            warn!(%error, key = %key.id, "a sign-in was refused, and the audit could not be told");
        }
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
    use flovyn_core::model::{AuditRow, NewKey, PageRequest, fresh_token};
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
        let access = Access::of([("fixed", Identity::operator())]).and_keys_of(storage.clone());
        assert!(access.identify("fixed").await.unwrap().is_some());
        let (org, token) = (OrgId::fresh(), fresh_token());
        let hour = Duration::from_secs(3_600);
        let new = |token: &str| NewKey {
            org,
            name: "ci".into(),
            scopes: "worker:gpu".parse().unwrap(),
            expires_in: Some(hour),
            not_after: None,
            hash: TokenHash::of(token),
            actor: "a test".into(),
        };
        let key = storage.create_key(new(&token)).await.unwrap();
        let caller = access.identify(&token).await.unwrap().unwrap();
        assert!(caller.org(None) == Some(org) && caller.serves("gpu") && !caller.serves("default"));
        assert!(access.identify(&fresh_token()).await.unwrap().is_none());
        let lasts =
            async |who: &Identity| tokio::time::timeout(KEY_TTL * 100, access.until_revoked(who)).await.is_err();
        assert!(lasts(&caller).await && lasts(&Identity::operator()).await);
        storage.revoke_key(org, key.id, "a test").await.unwrap();
        tokio::time::timeout(KEY_TTL * 3, access.until_revoked(&caller)).await.expect("what it began is ended");
        tokio::time::advance(KEY_TTL).await;
        for _ in 0..3 {
            assert!(access.identify(&token).await.unwrap().is_none());
        }
        tokio::time::advance(REFUSAL_INTERVAL).await;
        assert!(access.identify(&token).await.unwrap().is_none());
        let rows = storage.audit(org, PageRequest::default()).await.unwrap().items;
        let fields = |row: &AuditRow| (row.actor.clone(), row.action.clone(), row.subject.clone());
        let refused = (format!("key {}", key.id), "key.refused".to_owned(), "revoked".to_owned());
        assert_eq!(rows.iter().take(2).map(fields).collect::<Vec<_>>(), [refused.clone(), refused]);
        assert_eq!(rows[2].action, "key.revoked");
        // An expired one needs no look at the store.
        let short = fresh_token();
        storage.create_key(new(&short)).await.unwrap();
        let caller = access.identify(&short).await.unwrap().unwrap();
        clock.advance(hour);
        tokio::time::timeout(KEY_TTL * 3, access.until_revoked(&caller)).await.expect("what it began is ended");
        assert!(access.identify(&short).await.unwrap().is_none());
    }
}
