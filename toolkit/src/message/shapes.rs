//! Parts as programs write them: in the form of this crate, or in that of a provider or of MCP.

use super::{Content, Media, MediaSource, Part};
use serde_json::{Map, Value};

/// The types of parts that are read, for messages.
pub const KNOWN: &str = "text, media, image (Anthropic and MCP), document (Anthropic), image_url and file (OpenAI Chat), input_text, \
                         input_image and input_file (OpenAI Responses), resource (MCP)";

/// Reads a part. The error says what is wrong with it, or which types there are.
pub fn read_part(part: &Part) -> Result<Part, String> {
    match &part.content {
        Content::Text { .. } | Content::Media(_) | Content::Custom(_) => Ok(part.clone()),
        Content::Unrecognized(fields) => of_fields(fields).map(Part::new),
        Content::Thinking(_) | Content::ToolCall(_) | Content::ToolResult(_) => {
            Err(format!("only a model or a tool writes parts of this type; the types to write are {KNOWN}"))
        }
    }
}

/// Reads the parts in a value that a tool returned: one part, a list of parts, or an object with a list named
/// `content`. None for any other value: it is data of the tool's own. Text alone counts only in an object that has nothing
/// beside it but the fields of an outcome, because other data may look like it.
pub fn parts_of_value(value: &Value) -> Option<(Vec<Part>, bool)> {
    const OUTCOME: [&str; 6] = ["content", "isError", "is_error", "details", "structuredContent", "_meta"];
    let fields = value.as_object();
    let listed = fields.filter(|fields| !fields.contains_key("type")).and_then(|fields| fields.get("content"));
    let list = match (value, listed) {
        (_, Some(Value::Array(list))) | (Value::Array(list), _) => list.as_slice(),
        (Value::Object(_), None) => std::slice::from_ref(value),
        _ => return None,
    };
    let parts = list.iter().map(part_of_value).collect::<Option<Vec<_>>>().filter(|parts| !parts.is_empty())?;
    let is_outcome = listed.is_some() && fields?.keys().all(|key| OUTCOME.contains(&key.as_str()));
    let has_media = parts.iter().any(|part| matches!(part.content, Content::Media(_)));
    if !is_outcome && !has_media {
        return None;
    }
    let says_error = |name: &str| fields.and_then(|fields| fields.get(name)) == Some(&Value::Bool(true));
    Some((parts, says_error("isError") || says_error("is_error")))
}

fn part_of_value(value: &Value) -> Option<Part> {
    let part: Part = serde_json::from_value(value.clone()).ok()?;
    read_part(&part).ok().filter(|part| matches!(part.content, Content::Text { .. } | Content::Media(_)))
}

fn of_fields(fields: &Map<String, Value>) -> Result<Content, String> {
    let Some(kind) = fields.get("type").and_then(Value::as_str) else {
        return Err(format!("a part needs a type, which is one of {KNOWN}"));
    };
    let text = |path: &[&str]| {
        let mut names = path.iter();
        let first = names.next().and_then(|name| fields.get(*name));
        names.fold(first, |value, name| value?.get(*name)).and_then(Value::as_str)
    };
    let missing = |what: &str| format!("a part of the type {kind:?} needs {what}");
    let name = text(&["filename"]).or_else(|| text(&["name"])).or_else(|| text(&["title"])).map(str::to_owned);
    let media = |mime: &str, source: MediaSource| Content::Media(Media { mime: mime.to_owned(), source, name: None });
    match kind {
        "input_text" | "output_text" => {
            let text = text(&["text"]).ok_or_else(|| missing("a text"))?;
            Ok(Content::Text { text: text.to_owned() })
        }
        // Anthropic's have a source, those of MCP have their data beside the type.
        "image" | "document" | "audio" => {
            let usual = if kind == "document" { "application/pdf" } else { "image/png" };
            if let Some(data) = text(&["data"]) {
                return Ok(media(text(&["mimeType"]).unwrap_or(usual), MediaSource::Base64(data.to_owned())));
            }
            let mime = text(&["source", "media_type"]).unwrap_or(usual);
            let source = match text(&["source", "type"]) {
                Some("base64") => text(&["source", "data"]).map(|data| MediaSource::Base64(data.to_owned())),
                Some("url") => text(&["source", "url"]).map(|url| MediaSource::Url(url.to_owned())),
                Some("file") => text(&["source", "file_id"]).map(|id| MediaSource::ProviderFile(id.to_owned())),
                Some("text") => {
                    let text = text(&["source", "data"]).ok_or_else(|| missing("source.data"))?;
                    return Ok(Content::Text { text: text.to_owned() });
                }
                _ => None,
            };
            let needs = "a source {type: base64, media_type, data} or {type: url, url}, or data and mimeType";
            let source = source.ok_or_else(|| missing(needs))?;
            Ok(Content::Media(Media { mime: mime.to_owned(), source, name }))
        }
        "image_url" | "input_image" => {
            let file = text(&["file_id"]).map(|id| MediaSource::ProviderFile(id.to_owned()));
            let url = text(&["image_url", "url"]).or_else(|| text(&["image_url"]));
            let source = url.map(|url| MediaSource::Url(url.to_owned())).or(file);
            Ok(media("image/png", source.ok_or_else(|| missing("image_url: a URL, or an object with one as url"))?))
        }
        "file" | "input_file" => {
            let of = |field: &str| text(&["file", field]).or_else(|| text(&[field]));
            let data = of("file_data").map(|data| match data.starts_with("data:") {
                true => MediaSource::Url(data.to_owned()),
                false => MediaSource::Base64(data.to_owned()),
            });
            let url = of("file_url").map(|url| MediaSource::Url(url.to_owned()));
            let id = of("file_id").map(|id| MediaSource::ProviderFile(id.to_owned()));
            let source = data.or(url).or(id).ok_or_else(|| missing("file_data, file_url or file_id"))?;
            let name = of("filename").map(str::to_owned).or(name);
            Ok(Content::Media(Media { mime: "application/pdf".to_owned(), source, name }))
        }
        "resource" => {
            let name = text(&["resource", "uri"]).map(str::to_owned);
            if let Some(text) = text(&["resource", "text"]) {
                return Ok(Content::Text { text: text.to_owned() });
            }
            let blob = text(&["resource", "blob"]).ok_or_else(|| missing("resource.text or resource.blob"))?;
            let mime = text(&["resource", "mimeType"]).unwrap_or("application/octet-stream");
            Ok(Content::Media(Media { mime: mime.to_owned(), source: MediaSource::Base64(blob.to_owned()), name }))
        }
        other => Err(format!("there is no part of the type {other:?}; the types are {KNOWN}")),
    }
}

impl Media {
    /// The same with the bytes of a `data:` URL as its source. Any other source stays as it is.
    pub fn with_data_url_read(mut self) -> Result<Self, String> {
        let MediaSource::Url(url) = &self.source else { return Ok(self) };
        if let Some(data) = url.strip_prefix("data:") {
            let Some((mime, bytes)) = data.split_once(";base64,") else {
                return Err("its data: URL has no bytes in base64; write data:image/png;base64,…".to_owned());
            };
            let mime = mime.split(';').next().filter(|mime| !mime.is_empty()).unwrap_or("application/octet-stream");
            self.mime = mime.to_owned();
            self.source = MediaSource::Base64(bytes.to_owned());
            return Ok(self);
        }
        match url.starts_with("https://") || url.starts_with("http://") {
            true => Ok(self),
            false => Err("its URL is none that a provider can fetch; use http:, https: or data:".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Content, String> {
        let part: Part = serde_json::from_value(value).map_err(|error| error.to_string())?;
        read_part(&part).map(|part| part.content)
    }

    fn media(mime: &str, source: MediaSource) -> Content {
        Content::Media(Media { mime: mime.into(), source, name: None })
    }

    #[test]
    fn the_shapes_of_providers_are_read() {
        let base64 = || MediaSource::Base64("AAAA".into());
        let url = || MediaSource::Url("https://a/b.png".into());
        for (value, content) in [
            (json!({"type": "media", "mime": "image/png", "source": {"base64": "AAAA"}}), media("image/png", base64())),
            (
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AAAA"}}),
                media("image/gif", base64()),
            ),
            (json!({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}), media("image/png", url())),
            (
                json!({"type": "document", "source": {"type": "file", "file_id": "f1"}}),
                media("application/pdf", MediaSource::ProviderFile("f1".into())),
            ),
            (json!({"type": "image", "data": "AAAA", "mimeType": "image/webp"}), media("image/webp", base64())),
            (json!({"type": "image_url", "image_url": {"url": "https://a/b.png"}}), media("image/png", url())),
            (json!({"type": "image_url", "image_url": "https://a/b.png"}), media("image/png", url())),
            (json!({"type": "input_image", "image_url": "https://a/b.png"}), media("image/png", url())),
            (json!({"type": "file", "file": {"file_data": "AAAA"}}), media("application/pdf", base64())),
            (json!({"type": "input_text", "text": "hi"}), Content::Text { text: "hi".into() }),
            (
                json!({"type": "resource", "resource": {"uri": "a:b", "text": "hi"}}),
                Content::Text { text: "hi".into() },
            ),
        ] {
            assert_eq!(read(value.clone()), Ok(content), "{value}");
        }
    }

    #[test]
    fn what_is_no_part_is_refused_in_words() {
        for (value, said) in [
            (json!({"type": "video", "url": "https://a"}), "no part of the type \"video\"; the types are text, media,"),
            (json!({"text": "hi"}), "needs a type"),
            (json!({"type": "image"}), "needs a source"),
            (json!({"type": "image_url"}), "needs image_url"),
            (json!({"type": "toolCall", "id": "a", "name": "b", "arguments": {}}), "only a model or a tool"),
        ] {
            let error = read(value.clone()).expect_err("it is refused");
            assert!(error.contains(said), "{value}: {error}");
        }
    }

    #[test]
    fn data_of_a_tool_is_no_part() {
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        for (value, parts) in [
            (image.clone(), Some((1, false))),
            (json!([{"type": "text", "text": "a"}, image.clone()]), Some((2, false))),
            (json!({"content": [{"type": "text", "text": "a"}], "isError": true}), Some((1, true))),
            (json!({"content": [image], "n": 1}), Some((1, false))),
            (json!({"type": "text", "text": "a"}), None),
            (json!([{"type": "text", "text": "a", "page": 1}]), None),
            (json!({"content": [{"type": "text", "text": "a"}], "page": 1}), None),
            (json!([{"type": "image", "title": "Otters"}]), None),
            (json!({"content": "a"}), None),
            (json!({"content": []}), None),
            (json!([]), None),
            (json!(5), None),
        ] {
            let found = parts_of_value(&value).map(|(parts, is_error)| (parts.len(), is_error));
            assert_eq!(found, parts, "{value}");
        }
    }

    #[test]
    fn data_urls_become_bytes() {
        let of = |url: &str| {
            let source = MediaSource::Url(url.into());
            Media { mime: "image/png".into(), source, name: None }.with_data_url_read()
        };
        let read = of("data:image/jpeg;base64,AAAA").expect("it is read");
        assert_eq!((read.mime.as_str(), read.source), ("image/jpeg", MediaSource::Base64("AAAA".into())));
        assert!(of("https://a/b").is_ok() && of("file:///etc/passwd").is_err() && of("data:,hi").is_err());
    }
}
