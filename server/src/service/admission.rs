//! Who is let in: the token is known, its scopes allow the call, and there is room. Both transports ask here.

use super::Service;
use crate::access::Identity;
use crate::limits::{OpenStream, Rate};
use crate::org_limiter::OrgStream;
use crate::policy::{self, Need};
use flovyn_core::error::{Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::model::Scopes;
use std::net::IpAddr;

/// Why a call is not let in. A transport says it in its own words, since tokens are sent in another way over each.
pub(crate) enum Refusal {
    /// It has no token.
    NoToken,
    /// Nobody knows its token.
    UnknownToken,
    /// Its token allows less than the call needs.
    NotAllowed {
        /// What it needs.
        needs: &'static str,
        /// What the token has.
        scopes: Box<Scopes>,
    },
    /// The store does not answer, or the address has sent too many unknown tokens.
    Failed(Error),
}

/// An event stream that is counted for its key and its org.
pub(crate) struct StreamPermit {
    key: OpenStream,
    _org: OrgStream,
}

impl StreamPermit {
    /// The caller that has it open.
    pub(crate) fn who(&self) -> &Identity {
        self.key.who()
    }
}

impl Service {
    /// The identity of a call, by its token and the address it came from, if the token allows what the call needs. A call that
    /// is in no table of needs is refused. `call` names it in the log.
    pub(crate) async fn admit(
        &self,
        token: Option<&str>,
        from: Option<IpAddr>,
        need: Option<Need>,
        call: &str,
    ) -> std::result::Result<Identity, Refusal> {
        let token = token.ok_or(Refusal::NoToken)?;
        let identity = self.identify(token, from).await.map_err(Refusal::Failed)?.ok_or(Refusal::UnknownToken)?;
        if need.is_some_and(|need| need.is_met(identity.scopes())) {
            return Ok(identity);
        }
        if need == Some(Need::Work) {
            self.refusals.log(&identity, call);
        }
        let needs = need.map_or("what no token has", Need::describe);
        Err(Refusal::NotAllowed { needs, scopes: Box::new(identity.scopes().clone()) })
    }

    /// The permission that a gRPC method needs, by its path.
    pub(crate) fn need_of_method(&self, path: &str) -> Option<Need> {
        let added = || self.protocols.iter().find_map(|protocol| protocol.need_of_method(path));
        policy::need_of_method(path).or_else(added)
    }

    /// The rate limit that calls of a gRPC method count for.
    pub(crate) fn rate_of_method(&self, path: &str) -> Option<Rate> {
        let added = || self.protocols.iter().find_map(|protocol| protocol.rate_of_method(path));
        policy::rate_of_method(path).or_else(added)
    }

    /// Logs that a worker asked for what its key does not allow.
    pub fn log_refusal(&self, who: &Identity, requested: &str) {
        self.refusals.log(who, requested);
    }

    /// The identity of a bearer token that came from an address.
    ///
    /// Errors: `RateLimited` after too many unknown tokens from that address; those of the store.
    pub(super) async fn identify(&self, token: &str, from: Option<IpAddr>) -> Result<Option<Identity>> {
        // A known token works even where somebody else guesses tokens from the same address.
        if let Some(ip) = from.filter(|_| !self.access.is_cached_valid(token)) {
            self.throttle.check_auth_failures(ip)?;
        }
        let identity = self.access.identify(token).await?;
        if let Some(ip) = from.filter(|_| identity.is_none()) {
            self.throttle.record_auth_failure(ip);
        }
        Ok(identity)
    }

    /// Counts a call against the limits of its key and of its org, which all keys of the org share.
    ///
    /// Errors: `RateLimited`, with the time until there is one again.
    pub(crate) async fn count(&self, rate: Rate, org: OrgId, who: &Identity) -> Result<()> {
        self.throttle.count(rate, org, who)?;
        self.org_limiter.count(&*self.storage, org, rate).await
    }

    /// Counts an event stream until the permit is dropped.
    ///
    /// Errors: `RateLimited` where the key or the org has reached its limit.
    pub(crate) async fn open_stream(&self, org: OrgId, who: &Identity) -> Result<StreamPermit> {
        let key = self.throttle.stream(org, who)?;
        Ok(StreamPermit { key, _org: self.org_limiter.stream(&*self.storage, org).await? })
    }

    /// The org that a slug or an id names, where the backend can know.
    pub async fn org_named(&self, name: &str) -> Result<Option<OrgId>> {
        if name == "default" {
            return Ok(Some(OrgId::DEFAULT));
        }
        if let Ok(id) = name.parse() {
            return Ok(Some(id));
        }
        let organizations = self.storage.server_side()?.organizations().await?;
        Ok(organizations.into_iter().find(|org| org.name == name).map(|org| org.id))
    }
}
