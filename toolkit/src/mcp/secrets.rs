//! The secrets of a server's configuration, which are removed from messages of the server and its transport.

use reqwest::Url;

/// Shorter values are not hidden. They are words such as `1` or `debug`, which messages contain for other reasons.
const SHORTEST: usize = 8;

/// Texts that are replaced in messages.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Hides these values, and everything of an address except its origin.
    pub(super) fn new(values: impl IntoIterator<Item = String>, address: Option<&Url>) -> Self {
        let hidden = |value: String| (value, "[hidden]".to_owned());
        let mut known: Vec<_> = values.into_iter().filter(|value| value.len() >= SHORTEST).map(hidden).collect();
        if let Some(url) = address {
            let origin = url.origin().ascii_serialization();
            known.extend(
                [url.as_str(), url.as_str().trim_end_matches('/')].map(|text| (text.to_owned(), origin.clone())),
            );
            let parts = [url.password(), url.query(), Some(url.path().trim_start_matches('/'))];
            let values = url.query_pairs().map(|(_, value)| value.into_owned());
            let parts = parts.into_iter().flatten().map(str::to_owned).chain(values);
            known.extend(parts.filter(|part| part.len() >= SHORTEST).map(hidden));
        }
        // Longer secrets are replaced first, because one may contain another.
        known.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self(known)
    }

    /// A message without them.
    pub(super) fn hide(&self, message: &str) -> String {
        self.0.iter().fold(message.to_owned(), |message, (secret, replacement)| message.replace(secret, replacement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lose_what_is_secret_and_nothing_else() {
        let url = Url::parse("https://user:pass-word@h.example/t0ken-in-path?key=abc-defghi").expect("an address");
        let secrets = Secrets::new(["s3cret-value".to_owned(), "1".to_owned()], Some(&url));
        let message = format!("1 request for {url} with s3cret-value: t0ken-in-path, pass-word, abc-defghi");
        let shown = secrets.hide(&message);
        assert_eq!(shown, "1 request for https://h.example with [hidden]: [hidden], [hidden], [hidden]");
    }
}
