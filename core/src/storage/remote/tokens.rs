//! The token of calls: where it comes from, and how it is renewed after a refusal.

use super::RemoteOptions;
use crate::error::{Code, Error, Result};
use crate::sync::Mutex;
use crate::wire::REFUSED;
use tonic::codegen::http::HeaderValue;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderMap, Response};

/// Provides the token of calls. It is asked again after a refusal, since a server that was started again may have
/// another token.
pub trait Tokens: Send + Sync + 'static {
    /// The present token, if there is one.
    fn token(&self) -> Option<String>;

    /// Where the token comes from, in the words of an error: `it was sent the token of FLOVYN_TOKEN`.
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

/// The token that the calls to one server are sent with.
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

    /// The header that calls are sent with now.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        self.header.lock().clone()
    }

    /// Adds the header to a call's headers.
    pub(super) fn sign(into: &mut HeaderMap, header: Option<&HeaderValue>) {
        if let Some(header) = header {
            into.insert(AUTHORIZATION, header.clone());
        }
    }

    /// A new header for a call that was refused with `refused`. None if the token has not changed.
    pub(super) fn renewed(&self, refused: Option<&HeaderValue>) -> Option<HeaderValue> {
        let mut known = self.header.lock();
        if known.as_ref() == refused {
            *known = header(&*self.tokens).ok()?;
        }
        known.clone().filter(|header| Some(header) != refused)
    }

    /// Adds to a refusal which server the call was sent to, and with which token.
    pub(super) fn tell<B>(&self, refusal: &mut Response<B>) {
        let sent = format!("{}: {}", self.url, self.tokens.describe());
        if let Ok(sent) = HeaderValue::from_bytes(sent.as_bytes()) {
            refusal.headers_mut().insert(REFUSED, sent);
        }
    }
}

/// The header for the present token.
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
