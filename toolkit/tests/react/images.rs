//! Images on their way to a model: from the user, in every shape, and from tools that are tasks.

use super::*;
use base64::Engine;
use flovyn_core::Payload;
use flovyn_core::model::TaskOptions;
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::{LocalTaskExecutor, TaskExecutor};
use image::{ImageFormat, RgbImage};
use std::io::Cursor;

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    RgbImage::new(width, height).write_to(&mut bytes, ImageFormat::Png).expect("an image");
    bytes.into_inner()
}

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The images of a message or a result in a request on Anthropic's wire: their media types.
fn images(content: &Value) -> Vec<&str> {
    let blocks = content.as_array().into_iter().flatten().filter(|block| block["type"] == "image");
    blocks.filter_map(|block| block["source"]["media_type"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_images_of_a_prompt_are_taken_in_every_shape() {
    let data = base64(&png(4, 3));
    let url = format!("data:image/png;base64,{data}");
    let lab = Lab::new(vec![Turn::text("I see.").times(6)]).await;
    for part in [
        json!({"type": "media", "mime": "image/png", "source": {"base64": data}}),
        // The media type is wrong; the bytes say what it is.
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": data}}),
        json!({"type": "image", "data": data, "mimeType": "image/png"}),
        json!({"type": "image_url", "image_url": {"url": url}}),
        json!({"type": "input_image", "image_url": url}),
        json!({"type": "image", "data": base64(&png(4_000, 10)), "mimeType": "image/png"}),
    ] {
        let input: AgentInput =
            serde_json::from_value(json!({"model": "fake/m", "userPrompt": "Look.", "userParts": [part]}))
                .expect("an input");
        lab.ends(&input).await;
        let request = lab.fake.requests().pop().expect("a request");
        assert_eq!(images(&request.body["messages"][0]["content"]), ["image/png"], "{part}");
    }
}

/// Those of a model call of one's own, which come neither from a user nor from a tool.
#[tokio::test(flavor = "multi_thread")]
async fn the_images_of_messages_are_taken_in_every_shape() {
    let data = base64(&png(4, 3));
    let fake = FakeLlm::start(Script::new([Turn::text("Well?"), Turn::text("I see.")])).expect("a server");
    let ask = async |parts: Value| {
        let asked = json!({"model": "fake/m", "messages": [
            {"role": "user", "parts": parts},
            // A newer version may have stored this of a model.
            {"role": "assistant", "parts": [{"type": "hologram"}, {"type": "text", "text": "Well?"}]},
            {"role": "user", "parts": [{"type": "text", "text": "Look."}]},
        ]});
        generate(&fake).ask_alone(&serde_json::from_value(asked).expect("an input")).await
    };
    for part in [
        json!({"type": "media", "mime": "image/png", "source": {"base64": data}}),
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": data}}),
        json!({"type": "image", "data": data, "mimeType": "image/png"}),
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}}),
    ] {
        ask(json!([part])).await.unwrap_or_else(|error| panic!("{part}: {error:?}"));
        let request = fake.requests().pop().expect("a request");
        assert_eq!(images(&request.body["messages"][0]["content"]), ["image/png"], "{part}");
    }
    let paid = fake.paid();
    let refused = ask(json!([{"type": "text", "text": "Look."}, {"type": "video"}])).await.expect_err("it is refused");
    let said = "messages[0].parts[1] cannot be used: there is no part of the type \"video\"";
    assert!(refused.message.contains(said), "{refused:?}");
    assert_eq!(fake.paid(), paid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_cannot_be_used_is_refused_in_words() {
    let lab = Lab::new([Turn::text("Hm.").times(9)]).await;
    for (part, said) in [
        (
            json!({"type": "video", "url": "https://a"}),
            "no part of the type \"video\"; the types are text, media, image",
        ),
        (json!({"type": "image", "data": "!", "mimeType": "image/png"}), "its data is no base64"),
        (json!({"type": "image", "data": base64(b"BM12345678"), "mimeType": "image/png"}), "its bytes are image/bmp"),
        (json!({"type": "image_url", "image_url": "file:///etc/passwd"}), "use http:, https: or data:"),
    ] {
        let input: AgentInput =
            serde_json::from_value(json!({"model": "fake/m", "userPrompt": "Look.", "userParts": [part]}))
                .expect("an input");
        let error = lab.start(&input).await.result(Some(PATIENCE)).await.expect_err("it is refused");
        assert!(error.message().contains("userParts[0]") && error.message().contains(said), "{part}: {error}");
    }
    assert_eq!(lab.fake.paid(), 0);
    // Nobody waits for an answer to a signal, so there the model is told.
    let run = lab.start(&ask("Hi").chat()).await;
    waits_for(&run, USER_MESSAGE).await;
    let parts = json!([{"type": "video"}, {"type": "media"}, {"type": "image", "data": base64(&png(2, 2))}]);
    let said = Payload::of(&json!({"text": "And this?", "parts": parts})).expect("JSON");
    run.signal(USER_MESSAGE, said, EngineDelivery::NextStep, None).await.expect("the run takes it");
    lab.asked(2).await;
    let content = lab.fake.requests().pop().expect("a request").body["messages"][2]["content"].clone();
    let texts: Vec<_> = content.as_array().expect("blocks").iter().filter_map(|block| block["text"].as_str()).collect();
    assert_eq!((texts.len(), images(&content)), (3, vec!["image/png"]), "{content}");
    assert!(
        texts[1].contains("no part of the type \"video\"") && texts[2].contains("missing field `mime`"),
        "{texts:?}"
    );
}

/// Returns what a host of another language would: JSON, or bytes as they are.
struct Returns(LocalTaskExecutor);

#[async_trait]
impl TaskExecutor for Returns {
    fn kinds(&self) -> Vec<String> {
        self.0.kinds().into_iter().chain(["note".into()]).collect()
    }

    fn options(&self, kind: &str) -> TaskOptions {
        self.0.options(kind)
    }

    async fn execute(&self, ctx: &TaskContext, kind: &str, input: Payload) -> Result<Payload> {
        if kind != "note" {
            return self.0.execute(ctx, kind, input).await;
        }
        let input: Value = input.parse()?;
        let data = base64(&png(4, 3));
        let image = json!({"type": "image", "data": data, "mimeType": "image/png"});
        Ok(match input["text"].as_str().unwrap_or_default() {
            "png" => Payload::raw(png(4, 3)),
            "text" => Payload::raw("Otters.".as_bytes().to_vec()),
            "binary" => Payload::raw(b"\x7fELF\0\0\xff".to_vec()),
            "part" => Payload::of(&image)?,
            "parts" => Payload::of(&json!([{"type": "text", "text": "Look:"}, image]))?,
            "mcp" => Payload::of(&json!({"content": [image], "isError": false}))?,
            "broken" => Payload::of(&json!({"type": "image", "data": base64(b"no image"), "mimeType": "image/png"}))?,
            _ => Payload::of(&json!([{"type": "image", "title": "Otters"}]))?,
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_and_bytes_of_a_tool_reach_the_model() {
    let cases = [
        ("png", 1, ""),
        ("text", 0, "Otters."),
        ("binary", 0, "[7 bytes of binary data (application/x-elf): not shown."),
        ("part", 1, ""),
        ("parts", 1, "Look:"),
        ("mcp", 1, ""),
        (
            "broken",
            0,
            "[An attachment was left out: it is called image/png, and its bytes are bytes of an unknown type",
        ),
        ("data", 0, r#"[{"title":"Otters","type":"image"}]"#),
    ];
    let calls = cases.map(|(text, ..)| Turn::call("note", json!({"text": text})));
    let fake = FakeLlm::start(Script::new(calls.into_iter().chain([Turn::text("Seen.")]))).expect("a server");
    let tool = AgentTool::task(spec("note"), "note", Effect::Read).expect("a schema");
    let agent = ReactAgent::new().with_system_prompt("").with_tool(tool).expect("a name");
    let executor = Returns(LocalTaskExecutor::new().register(generate(&fake)).expect("one kind"));
    let runner = AgentBuilder::new().storage("memory:").task_executor(executor).build().await.expect("a backend");
    let outcome = runner.execute(agent, ask("Go.")).await.expect("it completes");
    assert_eq!(outcome.turns, 9);
    let request = fake.requests().pop().expect("a request");
    let messages = request.body["messages"].as_array().expect("messages").clone();
    let results =
        messages.iter().filter_map(|message| Some(&message["content"].get(0)?["content"]).filter(|c| !c.is_null()));
    let results: Vec<_> = results.collect();
    assert_eq!(results.len(), cases.len(), "{results:#?}");
    for ((name, wanted, begins), content) in cases.into_iter().zip(results) {
        let texts = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
        let text = content.as_str().map_or_else(|| texts.collect(), str::to_owned);
        assert_eq!(images(content).len(), wanted, "{name}: {content}");
        assert!(text.starts_with(begins) && text.is_empty() == begins.is_empty(), "{name}: {text}");
    }
}
