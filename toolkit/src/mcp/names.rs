//! The names of MCP tools: `mcp__server__tool`, with characters that providers accept, the same in every process.

use std::collections::BTreeSet;

/// The longest name that providers accept.
const MAX_LENGTH: usize = 64;
/// How many letters of the digest are part of a name.
const DIGEST_LENGTH: usize = 8;

/// The name of a server's tool: `mcp__server__tool`. Letters that providers do not accept become `_`. A name of more
/// than 64 letters is cut, and ends with a digest of the whole name.
pub fn tool_name(server: &str, tool: &str) -> String {
    let name = format!("mcp__{}__{}", sanitized(server), sanitized(tool));
    if name.len() <= MAX_LENGTH { name } else { with_digest(&name, server, tool) }
}

/// The name of a tool among others. If the plain name is taken, the name ends with a digest, and the flag is true.
pub(super) fn distinct(taken: &mut BTreeSet<String>, server: &str, tool: &str) -> (String, bool) {
    let plain = tool_name(server, tool);
    if taken.insert(plain.clone()) {
        return (plain, false);
    }
    let name = with_digest(&plain, server, tool);
    taken.insert(name.clone());
    (name, true)
}

/// Whether no letter of the names has to be replaced. Such a tool keeps its plain name if another tool would get the
/// same one.
pub(super) fn is_exact(server: &str, tool: &str) -> bool {
    sanitized(server) == server && sanitized(tool) == tool
}

fn sanitized(name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    name.chars().map(|letter| if fits(letter) { letter } else { '_' }).collect()
}

fn with_digest(name: &str, server: &str, tool: &str) -> String {
    let mut digest = blake3::Hasher::new();
    // The length comes before the name of the server: otherwise "a", "bc" would have the digest of "ab", "c".
    digest.update(&(server.len() as u64).to_le_bytes()).update(server.as_bytes()).update(tool.as_bytes());
    let digest = digest.finalize().to_hex();
    // The name is ASCII by now, so it can be cut at any byte.
    format!("{}_{}", &name[..name.len().min(MAX_LENGTH - DIGEST_LENGTH - 1)], &digest[..DIGEST_LENGTH])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_providers_and_stay_apart() {
        assert_eq!(tool_name("github", "create_issue"), "mcp__github__create_issue");
        assert_eq!(tool_name("my server", "a.b/ü"), "mcp__my_server__a_b__");
        let long = [tool_name("s", &"x".repeat(99)), tool_name("s", &"x".repeat(100)), tool_name(&"s".repeat(80), "x")];
        for name in &long {
            assert_eq!(name.len(), MAX_LENGTH);
        }
        assert_eq!(long.iter().collect::<BTreeSet<_>>().len(), 3, "{long:?}");
        assert_eq!(tool_name("s", &"x".repeat(64 - 8)), format!("mcp__s__{}", "x".repeat(56)));
    }

    #[test]
    fn a_taken_name_is_told_apart_by_a_digest() {
        let mut taken = BTreeSet::new();
        let mut name = |server, tool| distinct(&mut taken, server, tool);
        assert_eq!(name("a", "b_c"), ("mcp__a__b_c".into(), false));
        let (first, first_told) = name("a", "b.c");
        let (second, second_told) = name("a", "b/c");
        assert!(first_told && second_told && first != second && first.starts_with("mcp__a__b_c_"), "{first} {second}");
        assert_eq!(name("a__b", "c"), ("mcp__a__b__c".into(), false));
        assert!(name("a", "b__c").1, "two exact names may be the same");
        assert!(is_exact("a", "b_c") && !is_exact("a", "b.c"));
    }
}
