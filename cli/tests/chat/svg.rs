//! A screen of a terminal as a picture: an SVG that is light or dark as its reader is.

use std::fmt::Write;

/// Columns and rows of a letter, in points.
const WIDE: f64 = 8.4;
const HIGH: f64 = 19.0;
/// The edge around the letters.
const EDGE: f64 = 14.0;
/// The names of the terminal's own colours with what they are on a light and on a dark ground.
const COLOURS: [(&str, &str, &str); 8] = [
    ("k", "#1f2328", "#e6edf3"),
    ("r", "#b3261e", "#ff8a80"),
    ("g", "#1a7f37", "#7ee787"),
    ("y", "#8a5a00", "#e3b341"),
    ("b", "#0550ae", "#79c0ff"),
    ("m", "#7c3aad", "#d2a8ff"),
    ("c", "#0b6e7f", "#76d9e6"),
    ("w", "#59636e", "#9198a1"),
];

/// The picture of a screen, without the empty rows at its end.
pub(crate) fn of(screen: &vt100::Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let is_empty = |row: &u16| (0..columns).all(|column| text(screen, *row, column).trim().is_empty());
    let last = (0..rows).rev().find(|row| !is_empty(row)).unwrap_or(0);
    let width = f64::from(columns).mul_add(WIDE, 2.0 * EDGE);
    let height = f64::from(last + 1).mul_add(HIGH, 2.0 * EDGE);
    let style = |dark: bool| {
        let mut style = String::new();
        for (name, light_colour, dark_colour) in COLOURS {
            let colour = if dark { dark_colour } else { light_colour };
            let _written = write!(style, ".{name}{{fill:{colour}}}");
        }
        let ground = if dark { "#0d1117" } else { "#ffffff" };
        let edge = if dark { "#30363d" } else { "#d1d9e0" };
        let _written = write!(style, "rect{{fill:{ground};stroke:{edge}}}.N{{fill:{ground}}}");
        style
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">\n\
         <title>{}</title>\n<style>text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}\
         .B{{font-weight:bold}}.D{{opacity:.66}}.I{{font-style:italic}}.U{{text-decoration:underline}}{}\
         @media(prefers-color-scheme:dark){{{}}}</style>\n\
         <rect x=\".5\" y=\".5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\"/>\n",
        escaped(title),
        style(false),
        style(true),
        width - 1.0,
        height - 1.0,
    );
    for row in 0..=last {
        // What is reversed has its colour as the ground.
        for (start, columns, class) in reversed(screen, row, columns) {
            let (x, top) = (f64::from(start).mul_add(WIDE, EDGE), f64::from(row).mul_add(HIGH, EDGE));
            let _written = writeln!(
                out,
                "<path class=\"{class}\" d=\"M{x:.1} {top:.0}h{:.1}v{HIGH:.0}h-{0:.1}z\"/>",
                f64::from(columns) * WIDE
            );
        }
        let y = f64::from(row).mul_add(HIGH, EDGE + 14.0);
        for (start, class, piece) in pieces(screen, row, columns) {
            let x = f64::from(start).mul_add(WIDE, EDGE);
            let length = width_of(&piece) * WIDE;
            let _written = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.0}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" class=\"{class}\">{}</text>",
                escaped(&piece)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The runs of cells whose ground has the colour of a class.
fn reversed(screen: &vt100::Screen, row: u16, columns: u16) -> Vec<(u16, u16, &'static str)> {
    let mut runs: Vec<(u16, u16, &'static str)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| cell.inverse()) else { continue };
        let class = colour(cell);
        match runs.last_mut().filter(|(start, count, last)| start + count == column && *last == class) {
            Some((_, count, _)) => *count += 1,
            None => runs.push((column, 1, class)),
        }
    }
    runs
}

/// The runs of letters of one style, without blanks at their ends.
fn pieces(screen: &vt100::Screen, row: u16, columns: u16) -> Vec<(u16, String, String)> {
    let mut pieces: Vec<(u16, String, String)> = Vec::new();
    let mut open = false;
    for column in 0..columns {
        let letter = text(screen, row, column);
        let class = class(screen, row, column);
        // Renderers draw several blanks as one, so no piece has them.
        open &= !(letter == " " && pieces.last().is_some_and(|(_, _, piece)| piece.ends_with(' ')));
        let goes_on = open && pieces.last().is_some_and(|(_, last, _)| *last == class || letter == " ");
        match pieces.last_mut().filter(|_| goes_on) {
            Some((_, _, piece)) => piece.push_str(&letter),
            None if letter.trim().is_empty() => {}
            None => {
                pieces.push((column, class, letter));
                open = true;
            }
        }
    }
    pieces.into_iter().map(|(start, class, piece)| (start, class, piece.trim_end().to_owned())).collect()
}

fn text(screen: &vt100::Screen, row: u16, column: u16) -> String {
    match screen.cell(row, column) {
        // The second half of a wide letter.
        Some(cell) if cell.is_wide_continuation() => String::new(),
        Some(cell) if cell.has_contents() => cell.contents().to_owned(),
        _ => " ".to_owned(),
    }
}

fn class(screen: &vt100::Screen, row: u16, column: u16) -> String {
    let Some(cell) = screen.cell(row, column) else { return "k".to_owned() };
    let colour = colour(cell);
    if cell.inverse() {
        return if cell.bold() { "N B" } else { "N" }.to_owned();
    }
    let flags = [(cell.bold(), " B"), (cell.dim(), " D"), (cell.italic(), " I"), (cell.underline(), " U")];
    std::iter::once(colour).chain(flags.into_iter().filter(|(set, _)| *set).map(|(_, class)| class)).collect()
}

fn colour(cell: &vt100::Cell) -> &'static str {
    match cell.fgcolor() {
        vt100::Color::Idx(index) => COLOURS.get(usize::from(index % 8)).map_or("k", |(name, ..)| name),
        _ => "k",
    }
}

fn width_of(text: &str) -> f64 {
    text.chars().map(|letter| unicode_width::UnicodeWidthChar::width(letter).unwrap_or(0) as f64).sum()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The contrast of two colours, as WCAG 2 defines it.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let light = |colour: [f64; 3]| {
        let linear = |part: f64| if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
        0.0722f64.mul_add(linear(colour[2]), 0.7152f64.mul_add(linear(colour[1]), 0.2126 * linear(colour[0])))
    };
    let (one, other) = (light(one), light(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_is_legible_on_both_grounds() {
    let parts = |colour: &str| {
        let part = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour")) / 255.0;
        [part(1), part(3), part(5)]
    };
    for (ground, is_dark) in [("#ffffff", false), ("#0d1117", true)] {
        let ground = parts(ground);
        let colour = |(_, light, dark): (&str, &str, &str)| parts(if is_dark { dark } else { light });
        for named in COLOURS {
            assert!(contrast(colour(named), ground) >= 4.5, "{named:?} {is_dark}");
        }
        // What is dim lets a third of the ground through.
        let plain = colour(COLOURS[0]);
        let dim = [0, 1, 2].map(|part| 0.66f64.mul_add(plain[part], 0.34 * ground[part]));
        assert!(contrast(dim, ground) >= 4.5, "dim: {}", contrast(dim, ground));
    }
}
