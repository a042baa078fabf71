//! Tools as their user sees them: by MCP server, and by whether the user is asked before a call.

use super::approval_rules::ApprovalRules;
use super::screen::style::{Row, Style, span, wrap};
use flovyn_toolkit::mcp::{McpProblem, TRY_AGAIN, tool_name};
use flovyn_toolkit::provider::ToolSpec;
use flovyn_toolkit::tools::approval::Decision;
use flovyn_toolkit::tools::{ToolDefinition, Toolbox};
use std::collections::BTreeMap;
use std::fmt;

/// The prefix of the names of MCP tools, and the separator in them.
const MCP: (&str, &str) = ("mcp__", "__");

/// The parts of a tool's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToolName<'a> {
    /// The MCP server; none for a tool of the host.
    pub server: Option<&'a str>,
    /// The tool, as its server calls it.
    pub tool: &'a str,
}

impl<'a> ToolName<'a> {
    /// Splits a name. Where the name of a server contains `__`, the rest of it is taken for a part of the tool's name.
    pub(super) fn of(name: &'a str) -> Self {
        let (head, between) = MCP;
        match name.strip_prefix(head).and_then(|rest| rest.split_once(between)) {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => Self { server: Some(server), tool },
            _ => Self { server: None, tool: name },
        }
    }
}

impl fmt::Display for ToolName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            Some(server) => write!(f, "{server}: {}", self.tool),
            None => f.write_str(self.tool),
        }
    }
}

/// Whether the user is asked before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallPolicy {
    /// It runs without asking.
    Runs,
    /// The user is asked.
    Asks,
    /// It is refused.
    Refused,
    /// Only its worker knows the effect of the tool.
    Unknown,
}

impl CallPolicy {
    fn describe(self) -> &'static str {
        match self {
            Self::Runs => "without asking",
            Self::Asks => "asked first",
            Self::Refused => "refused",
            Self::Unknown => "asked first unless its server says that it only looks",
        }
    }
}

/// Tools by server, then by policy; those of the host have no server.
#[derive(Debug, Default)]
pub(super) struct ToolListing(BTreeMap<Option<String>, BTreeMap<CallPolicy, Vec<String>>>);

impl ToolListing {
    /// The tools that this process serves.
    pub(super) fn of_local_tools(tools: &[ToolDefinition], rules: &ApprovalRules) -> Self {
        let mut listing = Self::default();
        for tool in tools {
            listing.add(&tool.name, rules.before(&tool.name, tool.effect));
        }
        listing
    }

    /// The tools that the model of a session was offered, wherever they run.
    pub(super) fn of_session(tools: &[ToolSpec], rules: &ApprovalRules) -> Self {
        let mut listing = Self::default();
        // Host tools have the same effect in every process.
        let host = Toolbox::host().unwrap_or_default();
        for ToolSpec { name, .. } in tools {
            let policy = host.get(name).map(|tool| rules.before(name, tool.effect()));
            listing.add(name, policy.unwrap_or(CallPolicy::Unknown));
        }
        listing
    }

    fn add(&mut self, name: &str, before: CallPolicy) {
        let ToolName { server, tool } = ToolName::of(name);
        let group = self.0.entry(server.map(str::to_owned)).or_default();
        group.entry(before).or_default().push(tool.to_owned());
    }

    /// The rows of the listing, with problems of servers.
    pub(super) fn rows(&self, problem_lines: &[String], width: usize) -> Vec<Row> {
        let mut rows = vec![vec![span("The model may call", Style::DIM)]];
        for (server, group) in &self.0 {
            rows.push(vec![span(server.as_deref().unwrap_or("here"), Style::BOLD)]);
            for (before, tools) in group {
                let describe = [span(format!("  {:<14}  ", before.describe()), Style::DIM)];
                let margin = [span(" ".repeat(18), Style::PLAIN)];
                rows.extend(wrap(&[span(tools.join(", "), Style::PLAIN)], width, &describe, &margin));
            }
        }
        rows.extend(problem_lines.iter().flat_map(|problem| problem_rows(problem, width)));
        rows
    }
}

impl ApprovalRules {
    fn before(&self, name: &str, effect: flovyn_toolkit::tools::Effect) -> CallPolicy {
        match self.decide(name, effect) {
            Decision::Allow => CallPolicy::Runs,
            Decision::Ask => CallPolicy::Asks,
            Decision::Deny => CallPolicy::Refused,
        }
    }
}

/// How many tools each MCP server has. The tool that stands for a server that cannot be used does not count.
pub(crate) fn counts(tools: &[ToolDefinition]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    let names = tools.iter().map(|tool| ToolName::of(&tool.name)).filter(|name| name.tool != TRY_AGAIN);
    for server in names.filter_map(|name| name.server) {
        *counts.entry(server).or_default() += 1;
    }
    counts
}

/// The problems of MCP servers, for people.
pub(crate) fn problem_lines(tools: &[ToolDefinition], problems: &[McpProblem]) -> Vec<String> {
    let counts = counts(tools);
    let problem = |McpProblem { server, message }: &McpProblem| {
        // Names of tools contain the server's name with the characters that providers accept.
        let name = tool_name(server, "x");
        let has_tools = ToolName::of(&name).server.is_some_and(|server| counts.contains_key(server));
        let rest = if has_tools { "" } else { " It goes on without it." };
        format!("The MCP server {server:?}: {}.{rest}", message.trim_end_matches('.'))
    };
    problems.iter().map(problem).collect()
}

/// The rows of a problem.
pub(super) fn problem_rows(problem: &str, width: usize) -> Vec<Row> {
    wrap(&[span(problem, Style::YELLOW)], width, &[span("! ", Style::YELLOW)], &[span("  ", Style::PLAIN)])
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
            assert_eq!(ToolName::of(name).to_string(), shown);
        }
    }

    #[test]
    fn tools_are_listed_by_server_and_by_policy() {
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
            tool("mcp__sea__try_again", Effect::Exec),
            tool("read", Effect::Read),
        ];
        let rules = ApprovalRules::read("reads").expect("a policy");
        let listing = ToolListing::of_local_tools(&tools, &rules);
        let broken = [("sea", "it is dry"), ("lake", "a tool is left out")];
        let broken = broken.map(|(server, message)| McpProblem { server: server.into(), message: message.into() });
        let rows: Vec<_> =
            listing.rows(&problem_lines(&tools, &broken), 60).iter().map(|row| painted(row, false)).collect();
        let expected = [
            "The model may call",
            "here",
            "  without asking  read",
            "  asked first     bash",
            "lake",
            "  without asking  depth",
            "  asked first     close, open",
            "sea",
            "  asked first     try_again",
            "! The MCP server \"sea\": it is dry. It goes on without it.",
            "! The MCP server \"lake\": a tool is left out.",
        ];
        assert_eq!(rows, expected);
        assert_eq!(counts(&tools), BTreeMap::from([("lake", 3)]));
    }
}
