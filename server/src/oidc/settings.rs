//! What a server is told of an issuer: the table `[oidc]` of its file.

use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::Scopes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// The issuer by which people sign in, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcSettings {
    /// Who says who people are: `https://login.example.com`. What it can do is read from its `/.well-known/openid-configuration`.
    pub issuer: String,
    /// What the issuer calls this server.
    pub client_id: String,
    /// What this server proves itself with; without it `FLOVYN_OIDC_SECRET`, and without that it is a public client.
    pub client_secret: Option<Secret>,
    /// Where browsers find this server: `https://agents.example.com`. The issuer sends them back to `/api/session/oidc/callback` there.
    pub public_url: String,
    /// Who people sign in with, as the button says it; the host of the issuer without it.
    pub label: Option<String>,
    /// What is asked for beside `openid`: `["email", "profile"]`.
    #[serde(default = "usual_scopes")]
    pub scopes: Vec<String>,
    /// The organization whose runs they see: `default`.
    pub org: Option<String>,
    /// What everybody may do whom the issuer lets in: roles or scopes, as a key has them. Nothing without it.
    pub everyone: Option<String>,
    /// The claim of the issuer that says of which groups somebody is: `"groups"`.
    #[serde(default = "usual_claim")]
    pub claim: String,
    /// What each group may do besides: `{ operators = "admin", staff = "member" }`.
    #[serde(default)]
    pub grants: BTreeMap<String, String>,
    /// Hours for which somebody stays signed in: 12, at most 336.
    #[serde(default = "usual_hours")]
    pub hours: u32,
}

fn usual_scopes() -> Vec<String> {
    vec!["email".to_owned(), "profile".to_owned()]
}

fn usual_claim() -> String {
    "groups".to_owned()
}

fn usual_hours() -> u32 {
    12
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What people may do who sign in.
#[derive(Debug)]
pub(super) struct Grants {
    everyone: Option<Scopes>,
    groups: BTreeMap<String, Scopes>,
}

impl OidcSettings {
    /// The secret of the file, else that of the environment.
    pub(super) fn secret(&self) -> Option<String> {
        let from_environment = || std::env::var("FLOVYN_OIDC_SECRET").ok().filter(|secret| !secret.is_empty());
        self.client_secret.as_ref().map(|secret| secret.0.clone()).or_else(from_environment)
    }

    /// Reads what people may do.
    ///
    /// Errors: `InvalidArgument` for what is no scope, for settings with which nobody could do anything, and for wrong hours.
    pub(super) fn grants(&self) -> Result<Grants> {
        let wrong = |setting: &str, error: &Error| {
            Error::new(Code::InvalidArgument, format!("[oidc] {setting}: {}", error.message()))
        };
        let read = |setting: &str, text: &str| text.parse::<Scopes>().map_err(|error| wrong(setting, &error));
        let everyone = self.everyone.as_deref().map(|text| read("everyone", text)).transpose()?;
        let groups = self.grants.iter().map(|(group, text)| Ok((group.clone(), read("grants", text)?)));
        let groups = groups.collect::<Result<BTreeMap<_, _>>>()?;
        if everyone.is_none() && groups.is_empty() {
            let message = "[oidc] lets people in who may do nothing: write everyone = \"viewer\", or grants = { GROUP = \"member\" }";
            return Err(Error::new(Code::InvalidArgument, message));
        }
        if !(1..=336).contains(&self.hours) {
            let message = format!("[oidc] hours = {}; give 1 to 336", self.hours);
            return Err(Error::new(Code::InvalidArgument, message));
        }
        Ok(Grants { everyone, groups })
    }
}

impl Grants {
    /// What somebody of these groups may do; none for nothing.
    pub(super) fn of(&self, groups: &[&str]) -> Option<Scopes> {
        let granted =
            self.groups.iter().filter(|(group, _)| groups.contains(&group.as_str())).map(|(_, scopes)| scopes);
        let all: Vec<String> = self.everyone.iter().chain(granted).map(Scopes::to_string).collect();
        // They were read from texts, so they can be read again.
        all.join(" ").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(rest: &str) -> OidcSettings {
        let text = format!(
            "issuer = 'https://login.example.com'\nclient_id = 'flovyn'\npublic_url = 'https://agents.example.com'\n{rest}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn groups_add_to_what_everyone_may_do() {
        let grants = settings("everyone = 'viewer'\n[grants]\nops = 'admin'\nstaff = 'exec:signal'").grants().unwrap();
        let of = |groups: &[&str]| grants.of(groups).map(|scopes| scopes.to_string());
        assert_eq!(of(&[]).as_deref(), Some("exec:read"));
        assert_eq!(of(&["staff", "unheard-of"]).as_deref(), Some("exec:read exec:signal"));
        assert_eq!(of(&["ops"]), Some(Scopes::all().to_string()));
        let groups_alone = settings("[grants]\nops = 'admin'").grants().unwrap();
        assert_eq!(groups_alone.of(&["staff"]).map(|scopes| scopes.to_string()), None);
    }

    #[test]
    fn settings_that_let_nobody_do_anything_are_refused() {
        for (rest, names) in [
            ("", "everyone"),
            ("everyone = 'root'", "everyone"),
            ("[grants]\nops = ''", "grants"),
            ("everyone = 'viewer'\nhours = 0", "hours"),
        ] {
            let refused = settings(rest).grants().unwrap_err();
            assert!(refused.message().contains(names) && refused.code() == Code::InvalidArgument, "{refused}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let settings = settings("client_secret = 'hush-hush'\neveryone = 'viewer'");
        assert!(!format!("{settings:?}").contains("hush") && settings.secret().as_deref() == Some("hush-hush"));
    }
}
