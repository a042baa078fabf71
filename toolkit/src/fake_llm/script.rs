//! The format of scripts: turns, their conditions, their speed and their faults. JSON or TOML, camelCase.

use crate::message::Stop;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// What the server answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Script {
    /// The turns. One with a `when` is played for every request that it fits, the first such in the list; the others are
    /// played in order.
    pub turns: Vec<Turn>,
    /// What the order of turns without a `when` goes by.
    pub order: Order,
    /// What is played when there is no turn for a request; without it the request is refused.
    pub otherwise: Option<Box<Turn>>,
    /// How fast answers come, where a turn does not say so.
    pub pace: Pace,
    /// What is demanded of requests.
    pub require: Require,
    /// How thoughts are told on the chat wire.
    pub reasoning: Reasoning,
    /// What `GET /v1/models` lists.
    pub models: Vec<String>,
}

/// What the order of turns goes by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// The conversation: with `n` answers in it, turn `n + 1` is played, however often it is asked for. So a client that
    /// crashed and asks again gets the same answer, and many conversations can be held at once.
    #[default]
    Conversation,
    /// Arrival: each request gets the next turn.
    Arrival,
}

/// One answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Turn {
    /// Which requests it is for. All that is named has to hold.
    pub when: Option<When>,
    /// How many places in the order it takes; 0 is 1. Its texts may say `{{i}}`, the place from 1.
    pub repeat: u32,
    /// What is thought.
    pub thinking: Option<ScriptedThinking>,
    /// What is said. Texts, thoughts and arguments may hold `{{i}}`, `{{turn}}` (answers in the conversation, plus one),
    /// `{{pad:1000}}` (so many characters of words), `{{lastUser}}`, `{{result}}` (the newest tool result's text),
    /// `{{half}}` (half of a surrogate pair) and `{{byte}}` (a byte that is no UTF-8).
    pub text: Option<String>,
    /// Which tools are called.
    pub tool_calls: Vec<ScriptedCall>,
    /// Tokens that are said to be used; what is left out is a quarter of the characters.
    pub usage: ScriptedUsage,
    /// Why it stops; without it, for its tool calls or because it is at its end.
    pub stop: Option<Stop>,
    /// How fast it comes.
    pub pace: Option<Pace>,
    /// What the server does otherwise than its wire says.
    pub oddities: Vec<Oddity>,
    /// What goes wrong: the first play of the turn has the first fault, and so on; after them it goes well.
    pub faults: Vec<Fault>,
}

/// Which requests a turn is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct When {
    /// The number of the request since the start, from 1.
    pub nth: Option<u64>,
    /// Answers in the conversation, plus one.
    pub turn: Option<u64>,
    /// The newest user message holds this text.
    pub last_user_contains: Option<String>,
    /// Whether the conversation holds a tool result.
    pub has_tool_result: Option<bool>,
    /// The newest tool results answer the call of this id.
    pub tool_call_id: Option<String>,
    /// The request has these headers.
    pub header: BTreeMap<String, String>,
    /// The request is for a model with this id.
    pub model: Option<String>,
}

/// What is thought: text alone, or with its signature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScriptedThinking {
    /// Text, with a signature that follows from it.
    Text(String),
    /// Text and its signature.
    Signed {
        /// The text; empty with `redacted`.
        #[serde(default)]
        text: String,
        /// The signature, or what a redacted thought consists of; without it, one that follows from the text.
        #[serde(default)]
        signature: Option<String>,
        /// Whether the thought is kept from the reader.
        #[serde(default)]
        redacted: bool,
    },
}

/// A tool that is called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ScriptedCall {
    /// The call's id; without it, one made of the turn and the place.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The arguments as text, in place of `arguments`: for what is no JSON.
    pub raw_arguments: Option<String>,
}

/// Tokens that are said to be used, in disjoint buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Fresh prompt tokens.
    pub input: Option<u64>,
    /// Prompt tokens from the cache.
    pub cache_read: u64,
    /// Prompt tokens into the cache.
    pub cache_write: u64,
    /// Those of them for an hour.
    #[serde(rename = "cacheWrite1h")]
    pub cache_write_1h: u64,
    /// Generated tokens.
    pub output: Option<u64>,
    /// Those of them for thinking.
    pub reasoning: u64,
    /// Millionths of a dollar that the chat wire says it cost.
    pub cost_micros: Option<u64>,
}

/// How fast an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Pace {
    /// Milliseconds before the first event.
    pub ttft_ms: u64,
    /// Milliseconds between events.
    pub chunk_ms: u64,
    /// Characters of text in one event.
    pub chunk_chars: usize,
    /// Bytes in one write, whatever they cut through (an event, JSON, a character of UTF-8); 0: an event each.
    pub write_bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { ttft_ms: 0, chunk_ms: 0, chunk_chars: 24, write_bytes: 0 }
    }
}

/// What is demanded of requests beyond what the wires demand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Require {
    /// The key; without it any will do, also none.
    pub key: Option<String>,
    /// On the chat wire, `reasoning_content` on every assistant message with tool calls, empty or not.
    pub reasoning_content: bool,
}

/// How thoughts are told on the chat wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reasoning {
    /// As `reasoning_content`.
    #[default]
    Content,
    /// As signed `reasoning_details`, which have to come back unchanged.
    Details,
}

/// What some servers do otherwise than the wire that they speak says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Oddity {
    /// All calls, blocks and items have the same number.
    OneIndex,
    /// A list of parts stands where a text is usual, or on Responses a text where a list is.
    ContentList,
    /// The answer comes whole, although a stream was asked for.
    Unstreamed,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// What.
    #[serde(flatten)]
    pub kind: FaultKind,
    /// On how many plays of the turn.
    #[serde(default = "once")]
    pub times: u32,
}

impl Fault {
    /// Makes a fault of one play.
    pub fn once(kind: FaultKind) -> Self {
        Self { kind, times: 1 }
    }
}

fn once() -> u32 {
    1
}

/// What goes wrong. `afterEvents` counts the events sent before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum FaultKind {
    /// A refusal in place of a response: 429, 500, 529.
    Status {
        /// The status.
        code: u16,
        /// Seconds for `retry-after`.
        #[serde(default)]
        retry_after: Option<f64>,
        /// What it says.
        #[serde(default)]
        message: Option<String>,
    },
    /// The wire's error event, and the end.
    Error {
        /// Events before it.
        #[serde(default)]
        after_events: usize,
        /// The provider's word for it.
        #[serde(default)]
        code: Option<String>,
    },
    /// The stream ends early.
    Cut(Cut),
    /// Nothing comes for a while, or any more.
    Stall {
        /// Events before it.
        #[serde(default)]
        after_events: usize,
        /// For how long; without it, until the client leaves.
        #[serde(default)]
        ms: Option<u64>,
    },
    /// An event that is no JSON.
    Malformed {
        /// Events before it.
        #[serde(default)]
        after_events: usize,
    },
    /// An event comes twice.
    Duplicate {
        /// Which, from 0.
        #[serde(default)]
        event: usize,
    },
    /// An event of a type that nobody knows comes in between.
    Unknown {
        /// Events before it.
        #[serde(default)]
        after_events: usize,
    },
    /// The answer is complete, is paid, and has nothing in it.
    Empty,
    /// The response's head comes late.
    SlowHead {
        /// How late.
        ms: u64,
    },
}

/// Where a stream ends early, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Cut {
    /// Events sent before it.
    pub after_events: Option<usize>,
    /// Bytes sent before it.
    pub after_bytes: Option<usize>,
    /// How.
    pub end: CutEnd,
}

/// How a stream ends early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CutEnd {
    /// As if it were complete: an orderly end of the response, as proxies make it.
    #[default]
    Clean,
    /// The connection breaks.
    Broken,
}

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the script cannot be read: {0}")]
pub struct ScriptError(String);

impl Script {
    /// Makes a script of turns in order.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self { turns: turns.into_iter().collect(), ..Self::default() }
    }

    /// Reads a script of TOML.
    ///
    /// # Errors
    ///
    /// The text is no such TOML; the error says where.
    pub fn from_toml(text: &str) -> Result<Self, ScriptError> {
        toml::from_str(text).map_err(|error| ScriptError(error.to_string()))
    }

    /// Reads a script of JSON.
    ///
    /// # Errors
    ///
    /// The text is no such JSON; the error says where.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        serde_json::from_str(text).map_err(|error| ScriptError(error.to_string()))
    }

    /// Reads a script from a file: JSON by its ending, else TOML.
    ///
    /// # Errors
    ///
    /// The file is not there, or is no script.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        let named = |reason: String| ScriptError(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let json = path.extension().is_some_and(|ending| ending == "json");
        let script = if json { Self::from_json(&text) } else { Self::from_toml(&text) };
        script.map_err(|error| named(error.0))
    }
}

impl Turn {
    /// Makes an answer of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Makes an answer that calls a tool; `arguments` other than an object are none.
    pub fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// Calls one more tool.
    #[must_use]
    pub fn and_call(mut self, name: impl Into<String>, arguments: Value) -> Self {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        self.tool_calls.push(ScriptedCall { name: name.into(), arguments, ..ScriptedCall::default() });
        self
    }

    /// Is sent in an odd way.
    #[must_use]
    pub fn odd(mut self, oddity: Oddity) -> Self {
        self.oddities.push(oddity);
        self
    }

    /// Thinks before.
    #[must_use]
    pub fn thinking(mut self, text: impl Into<String>) -> Self {
        self.thinking = Some(ScriptedThinking::Text(text.into()));
        self
    }

    /// Goes wrong on its next play.
    #[must_use]
    pub fn fault(mut self, kind: FaultKind) -> Self {
        self.faults.push(Fault::once(kind));
        self
    }

    /// Takes so many places in the order.
    #[must_use]
    pub fn times(mut self, places: u32) -> Self {
        self.repeat = places;
        self
    }

    /// Is for certain requests alone.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }
}
