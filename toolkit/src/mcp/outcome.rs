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
/// The most text of one result. What a model is shown of it at once is for the caller to decide: the agent shows the
/// beginning and the end, and lets the model read the rest.
const MAX_RESULT: usize = 32 << 20;

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
        Ok(Answer::Task(..) | Answer::AugmentedTask(_)) => {
            Err(Fault::for_model("mcp_error", "The call ended while its task went on."))
        }
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
    model_content.note_cut();
    let mut details = json!({ "bytes": model_content.bytes, "cut": model_content.is_cut() });
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
    model_content.note_cut();
    let details = json!({ "bytes": model_content.bytes, "cut": model_content.is_cut() });
    ToolOutcome { content: model_content.parts, is_error: false, details }
}

/// The parts of a message of a server: one block of content, or a list of them. Nobody can read more of a message later, so
/// its text is bounded here.
pub(super) async fn of_blocks(content: &Value) -> Vec<Part> {
    let mut model_content =
        ModelContent { lines_left: excerpt::MAX_LINES, bytes_left: excerpt::MAX_BYTES, ..ModelContent::default() };
    for block in content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice) {
        model_content.block(lenient_block(block.clone())).await;
    }
    model_content.note_cut();
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

/// The content for the model, up to a limit.
struct ModelContent {
    parts: Vec<Part>,
    lines_left: usize,
    bytes_left: usize,
    /// The bytes of all text, with what is left out.
    bytes: usize,
    /// The bytes of the text that is left out.
    left_out: usize,
    images: usize,
}

impl Default for ModelContent {
    fn default() -> Self {
        Self { parts: Vec::new(), lines_left: usize::MAX, bytes_left: MAX_RESULT, bytes: 0, left_out: 0, images: 0 }
    }
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
        let is_full = self.is_cut() || self.lines_left == 0 || self.bytes_left == 0;
        let head = if is_full { "" } else { excerpt::head(&text, self.lines_left, self.bytes_left).0 };
        self.left_out += text.len() - head.len();
        self.lines_left = self.lines_left.saturating_sub(head.lines().count());
        self.bytes_left -= head.len();
        // A text without letters stays: it may be all that the server said.
        if !is_full {
            self.parts.push(Part::text(head));
        }
    }

    fn is_cut(&self) -> bool {
        self.left_out > 0
    }

    /// Says at the end how much is left out.
    fn note_cut(&mut self) {
        if self.is_cut() {
            let left_out = excerpt::size(self.left_out as u64);
            let note = format!("\n[Cut: the last {left_out} are left out, for they are more than can be kept.]");
            self.parts.push(Part::text(note));
        }
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
    async fn the_text_of_a_result_is_whole_up_to_what_can_be_kept() {
        let long = "line of text\n".repeat(400_000);
        let outcome = of(vec![ContentBlock::text(long.clone()), ContentBlock::text("more")]).await;
        assert_eq!(outcome.content.iter().filter_map(Part::as_text).collect::<Vec<_>>(), [long.as_str(), "more"]);
        assert_eq!(
            (outcome.details["cut"].as_bool(), outcome.details["bytes"].as_u64()),
            (Some(false), Some(5_200_004))
        );
        let wide = of(vec![ContentBlock::text("ü".repeat(MAX_RESULT)), ContentBlock::text("more")]).await;
        assert!(wide.plain_text().len() < MAX_RESULT + 200 && wide.details["cut"] == true);
        let said = wide.plain_text();
        assert!(said.ends_with("\n[Cut: the last 32.0 MB are left out, for they are more than can be kept.]"));
    }

    #[tokio::test]
    async fn a_message_is_bounded_like_the_results_of_host_tools() {
        let line = "line of text\n";
        let long =
            json!([{ "type": "text", "text": line.repeat(excerpt::MAX_LINES) }, { "type": "text", "text": "more" }]);
        let parts = of_blocks(&long).await;
        let texts: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
        let note = "\n[Cut: the last 4 bytes are left out, for they are more than can be kept.]";
        assert_eq!(texts, [line.repeat(excerpt::MAX_LINES).as_str(), note]);
        let wide = of_blocks(&json!({ "type": "text", "text": "ü".repeat(50_000) })).await;
        assert!(wide[0].as_text().is_some_and(|text| text.len() <= excerpt::MAX_BYTES));
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
