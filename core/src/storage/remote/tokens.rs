//! The token of calls: where it comes from, and what counts once it was refused.

use super::RemoteOptions;
use crate::error::{Code, Error, Result};
use crate::wire::REFUSED;
use parking_lot::Mutex;
use tonic::codegen::http::HeaderValue;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderMap, Response};

/// Gives the token of calls. It is asked again when a call was refused: a server that was started anew may have another one.
pub trait Tokens: Send + Sync + 'static {
    /// The token that counts now, if there is one.
    fn token(&self) -> Option<String>;

    /// Which one that is, as errors say it: `it was sent the token of FLOVYN_TOKEN`.
    fn describe(&self) -> String;
}

impl Tokens for RemoteOptions {
    fn token(&self) -> Option<String> {
        self.token.clone()
    }

    fn describe(&self) -> String {
        match self.token {
            Some(_) => "it was sent the token that the program gave".into(),
            None => "it was sent no token".into(),
        }
    }
}

/// What the calls to one server are sent with.
pub(super) struct Credentials {
    url: String,
    tokens: Box<dyn Tokens>,
    header: Mutex<Option<HeaderValue>>,
}

impl Credentials {
    pub(super) fn of(url: &str, tokens: Box<dyn Tokens>) -> Result<Self> {
        let header = Mutex::new(header(&*tokens)?);
        Ok(Self { url: url.to_owned(), tokens, header })
    }

    /// What calls are sent with now.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        self.header.lock().clone()
    }

    /// Puts what a call is sent with into its head.
    pub(super) fn sign(into: &mut HeaderMap, header: Option<&HeaderValue>) {
        if let Some(header) = header {
            into.insert(AUTHORIZATION, header.clone());
        }
    }

    /// What a call may be sent with that was refused with `refused`; none where that still is what counts.
    pub(super) fn renewed(&self, refused: Option<&HeaderValue>) -> Option<HeaderValue> {
        let mut known = self.header.lock();
        if known.as_ref() == refused {
            *known = header(&*self.tokens).ok()?;
        }
        known.clone().filter(|header| Some(header) != refused)
    }

    /// Says in a refusal whom the call was sent to and with which token.
    pub(super) fn tell<B>(&self, refusal: &mut Response<B>) {
        let told = format!("{}: {}", self.url, self.tokens.describe());
        if let Ok(told) = HeaderValue::from_bytes(told.as_bytes()) {
            refusal.headers_mut().insert(REFUSED, told);
        }
    }
}

/// A token as the header of a call.
fn header(tokens: &dyn Tokens) -> Result<Option<HeaderValue>> {
    let Some(token) = tokens.token() else { return Ok(None) };
    let header = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
        let told = tokens.describe();
        Error::new(
            Code::InvalidArgument,
            format!("the token has characters that no token has; check FLOVYN_TOKEN ({told})"),
        )
    })?;
    Ok(Some(header))
}
