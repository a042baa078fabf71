//! Tools as their user sees them: under the server that they come from, with what is asked before each.

use super::approving::Standing;
use super::screen::style::{Row, Style, span, wrap};
use flovyn_toolkit::mcp::{McpProblem, tool_name};
use flovyn_toolkit::provider::ToolSpec;
use flovyn_toolkit::tools::approval::Decision;
use flovyn_toolkit::tools::{ToolDefinition, Toolbox};
use std::collections::BTreeMap;
use std::fmt;

/// What the names of MCP tools begin with, and what parts them.
const MCP: (&str, &str) = ("mcp__", "__");

/// A tool's name taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// The MCP server; none for a tool of the host.
    pub server: Option<&'a str>,
    /// The tool, as its server calls it.
    pub tool: &'a str,
}

impl<'a> Named<'a> {
    /// Takes a name apart. Where a server's own name holds `__`, a part of it goes with the tool.
    pub fn of(name: &'a str) -> Self {
        let (head, between) = MCP;
        match name.strip_prefix(head).and_then(|rest| rest.split_once(between)) {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => Self { server: Some(server), tool },
            _ => Self { server: None, tool: name },
        }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            Some(server) => write!(f, "{server}: {}", self.tool),
            None => f.write_str(self.tool),
        }
    }
}

/// What happens before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Before {
    /// Nothing.
    Runs,
    /// The user is asked.
    Asks,
    /// It is refused.
    Refused,
    /// Its worker knows what it does to the world.
    Unknown,
}

impl Before {
    fn word(self) -> &'static str {
        match self {
            Self::Runs => "without asking",
            Self::Asks => "asked first",
            Self::Refused => "refused",
            Self::Unknown => "asked first unless its server says that it only looks",
        }
    }
}

/// Tools by their server, then by what happens before a call; the host's under no name.
#[derive(Debug, Default)]
pub struct Listing(BTreeMap<Option<String>, BTreeMap<Before, Vec<String>>>);

impl Listing {
    /// The tools that this process serves.
    pub fn served(tools: &[ToolDefinition], standing: &Standing) -> Self {
        let mut listing = Self::default();
        for tool in tools {
            listing.add(&tool.name, standing.before(&tool.name, tool.effect));
        }
        listing
    }

    /// The tools that the model of a session was told of, whoever serves them.
    pub fn offered(tools: &[ToolSpec], standing: &Standing) -> Self {
        let mut listing = Self::default();
        // What tools of this name do is known here, too.
        let host = Toolbox::host().unwrap_or_default();
        for ToolSpec { name, .. } in tools {
            let known = host.get(name).map(|tool| standing.before(name, tool.effect()));
            listing.add(name, known.unwrap_or(Before::Unknown));
        }
        listing
    }

    fn add(&mut self, name: &str, before: Before) {
        let Named { server, tool } = Named::of(name);
        let group = self.0.entry(server.map(str::to_owned)).or_default();
        group.entry(before).or_default().push(tool.to_owned());
    }

    /// For the screen, with what is wrong with servers.
    pub fn rows(&self, troubles: &[String], width: usize) -> Vec<Row> {
        let mut rows = vec![vec![span("The model may call", Style::DIM)]];
        for (server, group) in &self.0 {
            rows.push(vec![span(server.as_deref().unwrap_or("here"), Style::BOLD)]);
            for (before, tools) in group {
                let word = [span(format!("  {:<14}  ", before.word()), Style::DIM)];
                let margin = [span(" ".repeat(18), Style::PLAIN)];
                rows.extend(wrap(&[span(tools.join(", "), Style::PLAIN)], width, &word, &margin));
            }
        }
        rows.extend(troubles.iter().flat_map(|told| trouble(told, width)));
        rows
    }
}

impl Standing {
    fn before(&self, name: &str, effect: flovyn_toolkit::tools::Effect) -> Before {
        match self.decide(name, effect) {
            Decision::Allow => Before::Runs,
            Decision::Ask => Before::Asks,
            Decision::Deny => Before::Refused,
        }
    }
}

/// How many tools each MCP server has.
pub fn counts(tools: &[ToolDefinition]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for server in tools.iter().filter_map(|tool| Named::of(&tool.name).server) {
        *counts.entry(server).or_default() += 1;
    }
    counts
}

/// What is wrong with MCP servers, for people: with one of their tools, or with all of them.
pub fn troubles(tools: &[ToolDefinition], problems: &[McpProblem]) -> Vec<String> {
    let counts = counts(tools);
    let told = |McpProblem { server, message }: &McpProblem| {
        // Tools carry the server's name in the letters that providers take.
        let name = tool_name(server, "x");
        let has_tools = Named::of(&name).server.is_some_and(|server| counts.contains_key(server));
        let rest = if has_tools { "" } else { " It goes on without it." };
        format!("The MCP server {server:?}: {}.{rest}", message.trim_end_matches('.'))
    };
    problems.iter().map(told).collect()
}

/// What is wrong, for the screen.
pub fn trouble(told: &str, width: usize) -> Vec<Row> {
    wrap(&[span(told, Style::YELLOW)], width, &[span("! ", Style::YELLOW)], &[span("  ", Style::PLAIN)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;
    use flovyn_toolkit::tools::Effect;
    use serde_json::json;

    #[test]
    fn names_are_taken_apart_for_people() {
        for (name, shown) in [
            ("mcp__github__create_issue", "github: create_issue"),
            ("mcp__a__b__c", "a: b__c"),
            ("bash", "bash"),
            ("mcp__", "mcp__"),
            ("mcp__a", "mcp__a"),
        ] {
            assert_eq!(Named::of(name).to_string(), shown);
        }
    }

    #[test]
    fn tools_are_listed_by_server_and_by_what_is_asked() {
        let tool = |name: &str, effect| ToolDefinition {
            name: name.into(),
            description: String::new(),
            input_schema: json!({}),
            effect,
        };
        let tools = [
            tool("bash", Effect::Exec),
            tool("mcp__lake__close", Effect::Exec),
            tool("mcp__lake__depth", Effect::Read),
            tool("mcp__lake__open", Effect::Exec),
            tool("read", Effect::Read),
        ];
        let standing = Standing::read("reads").expect("a policy");
        let listing = Listing::served(&tools, &standing);
        let broken = [("sea", "it is dry"), ("lake", "a tool is left out")];
        let broken = broken.map(|(server, message)| McpProblem { server: server.into(), message: message.into() });
        let rows: Vec<_> = listing.rows(&troubles(&tools, &broken), 60).iter().map(|row| painted(row, false)).collect();
        let expected = [
            "The model may call",
            "here",
            "  without asking  read",
            "  asked first     bash",
            "lake",
            "  without asking  depth",
            "  asked first     close, open",
            "! The MCP server \"sea\": it is dry. It goes on without it.",
            "! The MCP server \"lake\": a tool is left out.",
        ];
        assert_eq!(rows, expected);
        assert_eq!(counts(&tools), BTreeMap::from([("lake", 3)]));
    }
}
