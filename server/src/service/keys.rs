//! Keys of an org. A key with the scope `keys` may create and revoke others, but never gives more than it has itself. The store
//! records what is done to them.

use super::Service;
use super::requester::Requester;
use crate::access::Identity;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{KeyId, OrgId};
use flovyn_core::model::{ApiKey, NewKey, Scope, Scopes, TokenHash, fresh_token};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
/// The longest name of a key, in characters.
pub(crate) const KEY_NAME: usize = 200;
/// Days that a key works where nothing is said, and at most.
pub(crate) const KEY_DAYS: (u32, u32) = (90, 365);
/// Seconds that a token for a browser works: where nothing is said, at least and at most.
pub(crate) const BROWSER_SECONDS: (u32, u32, u32) = (900, 60, 86_400);
/// What such tokens are called.
const BROWSER: &str = "browser token";
/// What a key may do where nothing is said.
const SCOPES: &str = "member,worker";

/// How long a new key is to work.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyLifetime {
    /// Nobody asked for a time.
    Usual,
    /// So many days.
    Days(u32),
    /// Until it is revoked.
    Unlimited,
}

impl Service {
    /// All keys of an org, oldest first.
    pub(crate) async fn keys(&self, org: OrgId) -> Result<Vec<ApiKey>> {
        self.storage.server_side()?.keys(org).await
    }

    /// Makes a key; its token is shown this once.
    ///
    /// Errors: `InvalidArgument` for a wrong name, scope or time; `PermissionDenied` for more than the caller's key has.
    pub(crate) async fn create_key(
        &self,
        by: &Requester,
        name: String,
        scopes: Option<&str>,
        lifetime: KeyLifetime,
    ) -> Result<(ApiKey, String)> {
        if !(1..=KEY_NAME).contains(&name.chars().count()) {
            return Err(invalid(format!("the name of a key has 1 to {KEY_NAME} characters")));
        }
        let scopes: Scopes = scopes.unwrap_or(SCOPES).parse()?;
        check_covered(by, &scopes)?;
        let expires_in = self.expiry(by, lifetime)?;
        self.key_for(by.org, &by.who, name, scopes, expires_in, by.to_string()).await
    }

    /// Makes a token for the browser of somebody who is to see one run, or the runs of one user, and no more.
    ///
    /// Errors: `InvalidArgument` for a wrong time; `PermissionDenied` for more than the caller's key has.
    pub(crate) async fn create_browser_token(
        &self,
        by: &Requester,
        scope: Scope,
        seconds: Option<u32>,
    ) -> Result<(ApiKey, String)> {
        let (usual, min, max) = BROWSER_SECONDS;
        let seconds = seconds.unwrap_or(usual);
        if !(min..=max).contains(&seconds) {
            return Err(invalid(format!("expiresInSeconds is {seconds}; give {min} to {max}, or nothing for {usual}")));
        }
        let scopes = Scopes::from(scope);
        check_covered(by, &scopes)?;
        let lasts = Some(Duration::from_secs(seconds.into()));
        self.key_for(by.org, &by.who, BROWSER.to_owned(), scopes, lasts, by.to_string()).await
    }

    /// Revokes a key: every server refuses it within five seconds. One that was revoked before stays as it is.
    ///
    /// Errors: `NotFound`.
    pub(crate) async fn revoke_key(&self, by: &Requester, id: KeyId) -> Result<ApiKey> {
        let revoked = self.end_key(by.org, id, &by.to_string()).await;
        revoked.map_err(|error| match error.code() {
            Code::NotFound => Error::new(Code::NotFound, format!("no key of this org has the id {id}")),
            _ => error,
        })
    }

    /// Makes a key that does not outlive its maker's; and its token.
    pub(super) async fn key_for(
        &self,
        org: OrgId,
        maker: &Identity,
        name: String,
        scopes: Scopes,
        expires_in: Option<Duration>,
        actor: String,
    ) -> Result<(ApiKey, String)> {
        let (token, not_after) = (fresh_token(), maker.expires_at());
        let hash = TokenHash::of(&token);
        let key = NewKey { org, name, scopes, expires_in, not_after, hash, actor };
        Ok((self.storage.server_side()?.create_key(key).await?, token))
    }

    /// Ends a key. Errors: `NotFound`.
    pub(super) async fn end_key(&self, org: OrgId, id: KeyId, actor: &str) -> Result<ApiKey> {
        self.storage.server_side()?.revoke_key(org, id, actor).await
    }

    /// How long a key lives that a key makes: what leaks shall not outlive the day on which it ends.
    fn expiry(&self, by: &Requester, lifetime: KeyLifetime) -> Result<Option<Duration>> {
        let requested = match lifetime {
            KeyLifetime::Usual => Some(DAY * KEY_DAYS.0),
            KeyLifetime::Days(days) if (1..=KEY_DAYS.1).contains(&days) => Some(DAY * days),
            KeyLifetime::Days(_) => {
                let max = KEY_DAYS.1;
                return Err(invalid(format!("give expiresInDays from 1 to {max}, or neverExpires alone")));
            }
            KeyLifetime::Unlimited => None,
        };
        let Some(end) = by.who.expires_at() else { return Ok(requested) };
        let remaining = end.since(self.storage.clock().now());
        if requested.is_some_and(|requested| requested <= remaining) {
            return Ok(requested);
        }
        if matches!(lifetime, KeyLifetime::Usual) {
            return Ok(Some(remaining));
        }
        Err(denied(format!(
            "a key makes none that outlives it, and this one ends at {end}: give fewer expiresInDays, or none"
        )))
    }
}

fn check_covered(by: &Requester, scopes: &Scopes) -> Result<()> {
    let own = by.who.scopes();
    if own.cover(scopes) {
        return Ok(());
    }
    Err(denied(format!("a key gives no more than it has: {scopes} was asked for, the caller has {own}")))
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

fn denied(message: String) -> Error {
    Error::new(Code::PermissionDenied, message)
}
