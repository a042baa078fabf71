//! The outcome of a call: text and images of the server's answer for the model, the rest for people and programs.

use super::call::{Answer, PendingInput};
use super::input::InputRequired;
use super::sampling::{SAMPLED, Sampler};
use crate::message::Part;
use crate::tools::fault::Fault;
use crate::tools::{ToolOutcome, excerpt, image};
use base64::Engine;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The most images of one result.
const MAX_IMAGES: usize = 10;
/// The most structured content that is kept, in bytes of JSON.
const MAX_STRUCTURED: usize = 256 * 1024;

/// The server and the tool of a call.
pub(super) struct CallIdentity<'a> {
    pub server: &'a str,
    /// The tool's name at its server.
    pub tool: &'a str,
    pub sampler: Option<&'a Sampler>,
}

/// The outcome of a call that has ended.
pub(super) async fn outcome(
    ended: Result<Answer, Fault>,
    called: &CallIdentity<'_>,
    required: impl FnOnce(PendingInput) -> Result<InputRequired, Fault>,
) -> flovyn_core::error::Result<ToolOutcome> {
    let settled = match ended {
        Ok(Answer::Result(result)) => of_result(*result).await,
        Ok(Answer::InputRequired(asked)) => required(*asked).map(|required| required.into_outcome()),
        // A call follows its task to the end.
        Ok(Answer::Task(..)) => Err(Fault::for_model("mcp_error", "The call ended while its task went on.")),
        Err(fault) => Err(fault),
    };
    let outcome = Fault::into_outcome(settled)?;
    let mut details = json!({ "server": called.server, "tool": called.tool });
    let sampled = called.sampler.map(Sampler::take_uncounted).unwrap_or_default();
    if !sampled.is_empty() {
        details[SAMPLED] = serde_json::to_value(sampled).unwrap_or_default();
    }
    Ok(outcome.with_details(details))
}

async fn of_result(result: CallToolResult) -> Result<ToolOutcome, Fault> {
    let CallToolResult { content, structured_content, is_error, .. } = result;
    let mut model_content = ModelContent::default();
    for block in content {
        model_content.block(block).await;
    }
    let structured = structured_content.filter(|value| !value.is_null());
    if model_content.parts.is_empty() {
        match &structured {
            Some(value) => model_content.text(&value.to_string()),
            None => model_content.text("(no output)"),
        }
    }
    let mut details = json!({ "bytes": model_content.bytes, "cut": model_content.is_cut });
    if let Some(value) = structured {
        let bytes = value.to_string().len();
        match bytes <= MAX_STRUCTURED {
            true => details["structuredContent"] = value,
            false => details["structuredBytes"] = Value::from(bytes),
        }
    }
    let is_error = is_error.unwrap_or_default();
    if is_error {
        details["error"] = Value::from("tool_error");
    }
    Ok(ToolOutcome { content: model_content.parts, is_error, details })
}

/// The outcome of reading a resource, which may have several contents.
pub(super) async fn of_resource(contents: &[Value]) -> ToolOutcome {
    let mut model_content = ModelContent::default();
    for content in contents {
        model_content.block(lenient_block(json!({ "type": "resource", "resource": content }))).await;
    }
    if model_content.parts.is_empty() {
        model_content.text("(empty)");
    }
    let details = json!({ "bytes": model_content.bytes, "cut": model_content.is_cut });
    ToolOutcome { content: model_content.parts, is_error: false, details }
}

/// The parts of a message of a server: one block of content, or a list of them.
pub(super) async fn of_blocks(content: &Value) -> Vec<Part> {
    let mut model_content = ModelContent::default();
    for block in content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice) {
        model_content.block(lenient_block(block.clone())).await;
    }
    model_content.parts
}

/// Reads a result that the library could not read, for instance because it has a kind of content that is newer than the
/// library. It has the content that can be shown. None if the value is not a result.
pub(super) fn lenient_result(result: Value) -> Option<CallToolResult> {
    let Value::Object(mut fields) = result else { return None };
    if fields.get("resultType").is_some_and(|kind| kind != "complete") {
        return None;
    }
    let is_known = |name: &str| fields.contains_key(name);
    if !fields.is_empty() && !["content", "structuredContent", "isError", "resultType"].into_iter().any(is_known) {
        return None;
    }
    let content = match fields.remove("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(blocks)) => blocks.into_iter().map(lenient_block).collect(),
        Some(block) => vec![lenient_block(block)],
    };
    let is_error = matches!(fields.get("isError"), Some(Value::Bool(true)));
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = fields.remove("structuredContent");
    Some(result)
}

fn lenient_block(block: Value) -> ContentBlock {
    if let Some(text) = block.as_str().or_else(|| block.get("text")?.as_str()) {
        return ContentBlock::text(text);
    }
    let kind = block.get("type").and_then(Value::as_str).unwrap_or("content").to_owned();
    serde_json::from_value(block).unwrap_or_else(|_| ContentBlock::text(format!("[{kind}: not shown]")))
}

/// The content for the model, up to the limits of all tools.
#[derive(Default)]
struct ModelContent {
    parts: Vec<Part>,
    lines: usize,
    shown_bytes: usize,
    bytes: usize,
    images: usize,
    is_cut: bool,
}

impl ModelContent {
    async fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.text(&text.text),
            ContentBlock::Image(found) => self.image(&found.data).await,
            ContentBlock::Audio(found) => self.placeholder("audio", Some(&found.mime_type), None),
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => self.text(&format!("{uri}:\n{text}")),
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => match mime_type.as_deref() {
                    Some(mime) if mime.starts_with("image/") => self.image(&blob).await,
                    mime => self.placeholder("resource", mime, Some(&uri)),
                },
                _ => self.placeholder("resource", None, None),
            },
            ContentBlock::ResourceLink(link) => {
                let about = link.description.or(link.title).unwrap_or_default();
                self.text(&format!("[resource {}: {}] {about}", link.name, link.uri));
            }
            _ => self.placeholder("content", None, None),
        }
    }

    fn text(&mut self, text: &str) {
        let text = clean(text);
        self.bytes += text.len();
        let (lines, bytes) = (excerpt::MAX_LINES - self.lines, excerpt::MAX_BYTES - self.shown_bytes);
        if self.is_cut {
            return;
        }
        let (head, is_cut) = if lines == 0 || bytes == 0 { ("", true) } else { excerpt::head(&text, lines, bytes) };
        self.lines += head.matches('\n').count() + usize::from(!head.ends_with('\n'));
        self.lines = self.lines.min(excerpt::MAX_LINES);
        self.shown_bytes += head.len();
        self.is_cut = is_cut;
        let note = match is_cut {
            false => String::new(),
            true => format!(
                "\n\n[Cut after {} lines or {}. Ask for less at once, or for the next page where the tool has pages.]",
                excerpt::MAX_LINES,
                excerpt::size(excerpt::MAX_BYTES as u64)
            ),
        };
        self.parts.push(Part::text(format!("{}{note}", if is_cut { head.trim_end_matches('\n') } else { head })));
    }

    async fn image(&mut self, base64: &str) {
        self.images += 1;
        if self.images > MAX_IMAGES {
            return self.placeholder("image", None, None);
        }
        let read = base64::engine::general_purpose::STANDARD.decode(base64.trim());
        let Ok(bytes) = read else { return self.placeholder("image that is no base64", None, None) };
        let Some(format) = image::sniff(&bytes) else {
            return self.placeholder("image of an unknown format", None, None);
        };
        // Decoding an image and making it smaller takes long enough to block other tasks, so it is done on another
        // thread.
        match tokio::task::spawn_blocking(move || image::prepare("the image", format, bytes)).await {
            Ok(Ok(ready)) => self.parts.push(Part::media(ready.mime, ready.base64)),
            _ => self.placeholder("image that cannot be read", None, None),
        }
    }

    /// Adds a placeholder for content that the model cannot be shown.
    fn placeholder(&mut self, what: &str, mime: Option<&str>, uri: Option<&str>) {
        let known: Vec<_> = [mime, uri].into_iter().flatten().map(clean).collect();
        let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        self.text(&format!("[{what}{known}: not shown]"));
    }
}

/// The text of a server without characters that models read but people do not see: terminal sequences and Unicode's tag
/// characters. A server could hide instructions in them.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let is_hidden = |letter: char| matches!(letter, '\u{e0000}'..='\u{e007f}');
    if !text.contains(is_hidden) && !text.contains('\u{1b}') {
        return text.into();
    }
    anstream::adapter::strip_str(text).to_string().replace(is_hidden, "").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::Resource;

    async fn of(content: Vec<ContentBlock>) -> ToolOutcome {
        of_result(CallToolResult::success(content)).await.expect("an outcome")
    }

    #[tokio::test]
    async fn text_is_cut_at_the_limits_of_all_tools() {
        let long = "line of text\n".repeat(excerpt::MAX_LINES);
        let outcome =
            of(vec![ContentBlock::text(long.clone()), ContentBlock::text("more"), ContentBlock::text("yet")]).await;
        assert_eq!(outcome.content.len(), 2, "{:?}", outcome.details);
        assert_eq!(outcome.content[0].as_text(), Some(long.as_str()));
        assert!(outcome.content[1].as_text().is_some_and(|text| text.contains("[Cut after 2000 lines or 50.0 KB")));
        assert_eq!((outcome.details["cut"].as_bool(), outcome.details["bytes"].as_u64()), (Some(true), Some(26_007)));
        let wide = of(vec![ContentBlock::text("ü".repeat(50_000))]).await;
        assert!(wide.plain_text().len() < excerpt::MAX_BYTES + 200 && wide.details["cut"] == true);
        assert_eq!(of(vec![ContentBlock::text("all")]).await.details["cut"], false);
    }

    #[tokio::test]
    async fn what_models_cannot_see_is_said() {
        let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        let outcome = of(vec![
            ContentBlock::image(png, "image/png"),
            ContentBlock::image("!", "image/png"),
            ContentBlock::audio("AAAA", "audio/wav"),
            ContentBlock::embedded_text("file:///a", "inside"),
            ContentBlock::resource(ResourceContents::blob("AAAA", "file:///b")),
            ContentBlock::resource_link(Resource::new("file:///c", "c")),
            ContentBlock::text("\u{1b}[31mred\u{1b}[0m and hid\u{e0041}den"),
        ])
        .await;
        assert!(
            matches!(&outcome.content[0].content, crate::message::Content::Media(media) if media.mime == "image/png")
        );
        assert_eq!(
            outcome.plain_text(),
            "[image that is no base64: not shown][audio (audio/wav): not shown]file:///a:\ninside[resource (file:///b): not \
             shown][resource c: file:///c] red and hidden"
        );
    }

    #[tokio::test]
    async fn structured_content_is_kept_and_shown_where_there_is_no_text() {
        let mut result = CallToolResult::success(vec![]);
        result.structured_content = Some(json!({ "n": 1 }));
        let outcome = of_result(result.clone()).await.expect("an outcome");
        assert_eq!(
            (outcome.plain_text().as_str(), &outcome.details["structuredContent"]),
            ("{\"n\":1}", &json!({ "n": 1 }))
        );
        result.structured_content = Some(json!("x".repeat(MAX_STRUCTURED)));
        let outcome = of_result(result).await.expect("an outcome");
        assert_eq!(outcome.details["structuredBytes"], MAX_STRUCTURED + 2);
        assert!(outcome.details.get("structuredContent").is_none());
    }
}
