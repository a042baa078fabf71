//! The last row of the screen: the mode, the model, how full its context is, what the session cost, and what confines commands.

use super::style::{Row, Span, Style, span, width_of, wrap};

/// The part of a context, in percent, from which it stands out: soon the conversation is compacted.
const NEARLY_FULL: u64 = 80;

/// What the row says.
#[derive(Debug, Default)]
pub(crate) struct Footer<'a> {
    /// The mode, where it is not the usual one.
    pub mode: Option<&'a str>,
    /// The model that is asked.
    pub model: &'a str,
    /// Tokens of the conversation, once a model has counted them.
    pub context: Option<u64>,
    /// Tokens that the model can take.
    pub window: Option<u64>,
    /// What the session cost, where it is known.
    pub cost: Option<&'a str>,
    /// What confines commands: a program, `off` or `none`; nothing where workers elsewhere decide.
    pub sandbox: Option<&'a str>,
    /// MCP servers are starting.
    pub opening: bool,
}

impl Footer<'_> {
    /// The row. A terminal that is too narrow for all of it goes without the help, then without the key of the mode and the
    /// provider of the model, then without the last parts; the mode and the model stay.
    pub(crate) fn row(&self, width: usize) -> Row {
        let model = self.model.rsplit_once('/').map_or(self.model, |(_, id)| id);
        let mode = self.mode.unwrap_or_default();
        let long = if mode.is_empty() { String::new() } else { format!("{mode} (Shift-Tab)") };
        for (mode, model, has_help) in
            [(long.as_str(), self.model, true), (&long, self.model, false), (mode, model, false)]
        {
            let row = joined(self.parts(mode, model, has_help));
            if width_of(&row) <= width {
                return row;
            }
        }
        let mut parts = self.parts(mode, model, false);
        let first = 1 + usize::from(!mode.is_empty());
        while parts.len() > first && width_of(&joined(parts.clone())) > width {
            parts.pop();
        }
        wrap(&joined(parts), width, &[], &[]).swap_remove(0)
    }

    fn parts(&self, mode: &str, model: &str, has_help: bool) -> Vec<Span> {
        let mut parts: Vec<_> = (!mode.is_empty()).then(|| span(mode, Style::BOLD)).into_iter().collect();
        parts.push(span(model, Style::DIM));
        parts.extend(self.context.map(|tokens| match self.window.filter(|window| *window > 0) {
            Some(window) => {
                let percent = tokens.saturating_mul(100).div_ceil(window);
                let style = if percent >= NEARLY_FULL { Style::BOLD } else { Style::DIM };
                span(format!("context {percent}% of {}", rounded(window)), style)
            }
            None => span(format!("context {}", rounded(tokens)), Style::DIM),
        }));
        parts.extend(self.cost.map(|cost| span(cost, Style::DIM)));
        parts.extend(self.sandbox.map(|sandbox| match sandbox {
            "off" | "none" => span(format!("sandbox {sandbox}"), Style::BOLD),
            _ => span("sandbox on", Style::DIM),
        }));
        if self.opening {
            parts.push(span("MCP servers are starting", Style::DIM));
        }
        parts.extend(has_help.then(|| span("/help", Style::DIM)));
        parts
    }
}

fn joined(parts: Vec<Span>) -> Row {
    let mut row = Row::new();
    for part in parts {
        if !row.is_empty() {
            row.push(span(SEPARATOR, Style::DIM));
        }
        row.push(part);
    }
    row
}

/// What stands between two parts.
const SEPARATOR: &str = " · ";

/// Tokens as people say them: `980`, `8.4k`, `200k`, `1M`.
fn rounded(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..9_950 => format!("{:.1}k", tokens as f64 / 1e3),
        9_950..999_500 => format!("{:.0}k", tokens as f64 / 1e3),
        _ => format!("{:.1}M", tokens as f64 / 1e6).replace(".0M", "M"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    #[test]
    fn it_says_where_things_stand_and_keeps_what_matters_where_it_is_narrow() {
        let footer = Footer {
            mode: Some("plan mode"),
            model: "anthropic/claude",
            context: Some(24_000),
            window: Some(200_000),
            cost: Some("$0.0123"),
            sandbox: Some("bubblewrap"),
            opening: false,
        };
        let text = |width| painted(&footer.row(width), false);
        let all = "plan mode (Shift-Tab) · anthropic/claude · context 12% of 200k · $0.0123 · sandbox on · /help";
        assert_eq!(text(100), all);
        assert_eq!(text(88), all.trim_end_matches(" · /help"));
        assert_eq!(text(70), "plan mode · claude · context 12% of 200k · $0.0123 · sandbox on");
        assert_eq!(text(60), "plan mode · claude · context 12% of 200k · $0.0123");
        assert_eq!(text(16), "plan mode ·", "one row at any width");
        let bare = Footer { model: "local/llama", context: Some(8_420), sandbox: Some("off"), ..Footer::default() };
        assert_eq!(painted(&bare.row(80), false), "local/llama · context 8.4k · sandbox off · /help");
    }

    #[test]
    fn what_needs_attention_stands_out() {
        let bold = |footer: Footer<'_>| {
            footer.row(100).into_iter().filter(|span| span.style.bold).map(|span| span.text).collect::<Vec<_>>()
        };
        let footer =
            Footer { model: "m", context: Some(85), window: Some(100), sandbox: Some("off"), ..Footer::default() };
        assert_eq!(bold(footer), ["context 85% of 100", "sandbox off"]);
        assert!(
            bold(Footer {
                model: "m",
                context: Some(10),
                window: Some(100),
                sandbox: Some("landlock"),
                ..Footer::default()
            })
            .is_empty()
        );
    }

    #[test]
    fn tokens_are_rounded() {
        for (tokens, text) in
            [(980, "980"), (8_420, "8.4k"), (9_990, "10k"), (200_000, "200k"), (1_000_000, "1M"), (1_048_576, "1M")]
        {
            assert_eq!(rounded(tokens), text);
        }
    }
}
