//! How a person's browser is let in: by a key, or by a code of one use that whoever runs the server hands out.

use super::Service;
use crate::access::Identity;
use crate::oidc::{Oidc, Person};
use crate::session::Session;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::OrgId;
use flovyn_core::model::{TokenHash, fresh_token, is_token};
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a code works.
const CODE_LIFETIME: Duration = Duration::from_secs(600);
/// Codes that wait at a time; a further one ends the oldest.
const MAX_CODES: usize = 100;
/// How long a browser stays signed in.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(14 * 86_400);
/// What the keys of browsers are called.
const KEY_NAME: &str = "browser session";

/// The codes that nobody has used yet, with whose they are and when they end.
pub(crate) type SignInCodes = Arc<Mutex<HashMap<TokenHash, (Identity, Instant)>>>;

/// With what a browser signs in.
pub(crate) enum SignIn<'a> {
    /// A code of one use.
    Code(&'a str),
    /// A token.
    Token(&'a str),
}

impl Service {
    /// Makes a code that lets one browser in as this caller, once, within ten minutes. It works on this server alone.
    pub(crate) fn sign_in_code(&self, who: &Identity) -> String {
        let code = fresh_token().trim_start_matches("fk_").to_owned();
        let mut codes = self.sign_in_codes.lock();
        let now = Instant::now();
        codes.retain(|_, (_, ends)| *ends > now);
        if codes.len() >= MAX_CODES
            && let Some(oldest) = codes.iter().min_by_key(|(_, (_, ends))| *ends).map(|(hash, _)| *hash)
        {
            codes.remove(&oldest);
        }
        codes.insert(TokenHash::of(&code), (who.clone(), now + CODE_LIFETIME));
        code
    }

    /// Lets a browser in. It gets the key that it has sent, or one of its own where a code or a token of the server itself was
    /// sent: what the server knows by itself never leaves it.
    ///
    /// Errors: `Unauthenticated` for what nobody knows, or knows no more; `RateLimited` after too many of these.
    pub(crate) async fn sign_in(&self, from: Option<IpAddr>, with: SignIn<'_>) -> Result<(Identity, Session)> {
        let who = match with {
            SignIn::Token(token) => {
                let who = self.identify(token, from).await?.ok_or_else(|| {
                    Error::new(Code::Unauthenticated, "this key is not known here; `flovyn keys create` makes one")
                })?;
                if is_token(token) {
                    return Ok((who, Session { token: token.to_owned(), is_own: false }));
                }
                who
            }
            SignIn::Code(code) => self.redeem(code, from)?,
        };
        let (org, scopes) = (who.own_org().unwrap_or(OrgId::DEFAULT), who.scopes().clone());
        let (name, actor, lasts) = (KEY_NAME.to_owned(), who.name().to_string(), Some(SESSION_LIFETIME));
        let (_, token) = self.key_for(org, &who, name, scopes, lasts, actor).await?;
        self.session_of(token, from).await
    }

    /// Lets in the browser of a person whom the issuer knows, with a key of its own.
    ///
    /// Errors: `NotFound` where the organization that the settings name is not there.
    pub(crate) async fn sign_in_person(
        &self,
        from: Option<IpAddr>,
        oidc: &Oidc,
        person: Person,
    ) -> Result<(Identity, Session)> {
        let org = self.org_named(oidc.org()).await?.ok_or_else(|| {
            Error::new(Code::NotFound, format!("there is no organization {:?}, which [oidc] names", oidc.org()))
        })?;
        let (name, actor) = (format!("{KEY_NAME} of {}", person.name), format!("oidc {}", person.name));
        let maker = Identity::of_org(org);
        let (_, token) = self.key_for(org, &maker, name, person.scopes, Some(oidc.lasts()), actor).await?;
        self.session_of(token, from).await
    }

    /// Signs a browser in with a key that was made for it.
    async fn session_of(&self, token: String, from: Option<IpAddr>) -> Result<(Identity, Session)> {
        let who = self.identify(&token, from).await?.ok_or_else(|| {
            Error::new(Code::StorageUnavailable, "the key of this browser was made and is not there; sign in again")
        })?;
        Ok((who, Session { token, is_own: true }))
    }

    /// Signs a browser out: a key that was made for it ends.
    pub(crate) async fn sign_out(&self, session: &Session) -> Result<()> {
        if !session.is_own {
            return Ok(());
        }
        let found = self.storage.server_side()?.key_of(TokenHash::of(&session.token)).await?;
        let Some(key) = found else { return Ok(()) };
        self.end_key(key.org, key.id, &format!("key {}", key.id)).await?;
        self.access.forget(key.id);
        Ok(())
    }

    fn redeem(&self, code: &str, from: Option<IpAddr>) -> Result<Identity> {
        if let Some(ip) = from {
            self.throttle.check_auth_failures(ip)?;
        }
        let found = self.sign_in_codes.lock().remove(&TokenHash::of(code));
        if let Some((who, ends)) = found
            && ends > Instant::now()
        {
            return Ok(who);
        }
        if let Some(ip) = from {
            self.throttle.record_auth_failure(ip);
        }
        let minutes = CODE_LIFETIME.as_secs() / 60;
        Err(Error::new(
            Code::Unauthenticated,
            format!(
                "this link was used before, or is older than {minutes} minutes; sign in with the token that `flovyn dev` prints, or \
                 start it again for a new link"
            ),
        ))
    }
}
