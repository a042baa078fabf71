//! Pictures of the chat for its page, made by driving it: `make screenshots`.

use super::terminal::Terminal;
use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, Script};
use std::path::Path;

/// The widths of terminals, with their rows.
const SIZES: [(u16, u16); 2] = [(80, 40), (140, 40)];

const SCRIPT: &str = r####"
[[turns]]
thinking = "The user wants the parser to accept trailing commas. First look where it splits."
text = """
The parser splits in one place, and its tests say what it should accept:

1. `parse_list` reads items **until** a bracket
2. a comma before the bracket is an error today

| input | now | wanted |
| --- | --- | --- |
| `[1, 2]` | ok | ok |
| `[1, 2,]` | error | ok |

```rust
fn parse_list(input: &str) -> Result<Vec<u64>, String> {
    input.trim_matches(['[', ']']).split(',').map(number).collect()
}
```

I will leave out what is empty."""
[[turns.toolCalls]]
name = "edit"
[turns.toolCalls.arguments]
path = "src/parser.rs"
old_string = """        .ok_or("no list")?;
    inner
        .split(',')
        .map(number)
        .collect()
"""
new_string = """        .ok_or("no list: it has no brackets")?;
    inner
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(number)
        .collect()
"""

[[turns]]
text = "Now the tests."
[[turns.toolCalls]]
name = "bash"
[turns.toolCalls.arguments]
command = """set -e
sh run-tests.sh --all \
  | tail -40
echo finished"""

[[turns]]
text = "One test is left that fails: `nested_lists`. It is not about commas; shall I look at it?"

[[turns]]
when = { lastUserContains = "compare" }
text = """
## Three ways to keep a list

Each has its **cost**; see [the notes](https://example.com/lists) and `List::new`. 日本語の文章も幅どおりに折り返されます。絵文字 👩‍🚀 も同じです。

1. A vector
   - fast to read, `O(1)`
   - slow to insert
     - but often *fast enough* when it is short, since the whole of it stands in one line of the cache of the processor
2. A linked list

> Measure before you choose.

| way | reads | inserts | remarks |
| :-- | --: | --: | --- |
| `Vec` | 1.2 ns | 310 ns | what most programs want, unless they insert at the front all day long |
| `LinkedList` | 48 ns | 9 ns | 連結リスト |

- [x] measured
- [ ] written down

```python
def insert(items: list[int], value: int) -> None:
    # keeps the order
    bisect.insort(items, value, key=lambda item: -item)  # a rather long line, which is broken at 80 columns
```

---

~~No~~ *Perhaps* both."""

[otherwise]
text = "The plan:\n\n1. Read items with their depth\n2. Close a list at its own bracket\n3. Test `[[1], [2, 3]]`"
"####;

const PARSER: &str = "//! Lists of numbers.

/// A list such as `[1, 2]`.
pub fn parse_list(input: &str) -> Result<Vec<u64>, String> {
    let inner = input
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .ok_or(\"no list\")?;
    inner
        .split(',')
        .map(number)
        .collect()
}
";

const TESTS: &str = "for number in 1 2 3 4 5 6 7 8 9 10 11; do echo \"test parser::case_$number ... ok\"; done
echo 'test parser::nested_lists ... FAILED'
echo
echo 'failures: parser::nested_lists'
echo 'test result: FAILED. 11 passed; 1 failed'
exit 101
";

struct Pictures<'a> {
    folder: &'a Path,
    columns: u16,
    number: usize,
    /// The folder of the test, which has another name each time.
    project: String,
}

impl Pictures<'_> {
    fn take(&mut self, terminal: &Terminal, name: &str) {
        // What is drawn with the last event is on the screen with the next frame.
        std::thread::sleep(Duration::from_millis(150));
        self.number += 1;
        let file = self.folder.join(format!("{:02}-{name}-{}.svg", self.number, self.columns));
        let picture = terminal.svg(name).replace(&self.project, "~/project");
        std::fs::write(file, picture).expect("a picture");
    }
}

/// All of them into the folder that `make screenshots` names; without one, those of the first size, to see that all scenes come.
#[test]
fn draws_the_pictures_of_the_page() {
    let kept = std::env::var_os("FLOVYN_SCREENSHOTS").map(PathBuf::from);
    let unkept = tempfile::tempdir().expect("a folder");
    let sizes = if kept.is_some() { &SIZES[..] } else { &SIZES[..1] };
    let folder = kept.unwrap_or_else(|| unkept.path().to_owned());
    std::fs::create_dir_all(&folder).expect("the folder");
    for &(columns, rows) in sizes {
        draw(&mut Pictures { folder: &folder, columns, number: 0, project: String::new() }, (rows, columns));
    }
}

fn draw(pictures: &mut Pictures<'_>, size: (u16, u16)) {
    let user = User::new();
    let project = user.project();
    pictures.project = project.display().to_string();
    std::fs::create_dir_all(project.join("src")).expect("a folder");
    std::fs::write(project.join("src/parser.rs"), PARSER).expect("a file");
    std::fs::write(project.join("src/numbers.rs"), "").expect("a file");
    std::fs::write(project.join("run-tests.sh"), TESTS).expect("a program");
    // A model whose window and price are known, as the footer shows them. Its answers are scripted.
    let model = FakeLlm::start(Script::from_toml(SCRIPT).expect("a script")).expect("a model");
    let variables = [("ANTHROPIC_BASE_URL", model.url()), ("ANTHROPIC_API_KEY", "scripted".to_owned())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut terminal = Terminal::sized(&user, &["--model", "sonnet"], &variables, size);
    terminal.shows("/help");
    terminal.write("Let the parser take trailing commas, see @src/pa");
    terminal.shows("▸ @src/parser.rs");
    pictures.take(&terminal, "complete-a-file");
    terminal.write("\t\r");
    terminal.shows("Allow it?");
    pictures.take(&terminal, "allow-an-edit");
    terminal.line("y");
    terminal.waits("the question about the command", |text| text.contains("Allow it?") && text.contains("run-tests"));
    pictures.take(&terminal, "allow-a-command");
    terminal.line("y");
    terminal.shows("shall I look");
    terminal.shows(" out · $");
    pictures.take(&terminal, "a-result");
    terminal.write("\u{f}");
    terminal.shows("q closes");
    pictures.take(&terminal, "everything-whole");
    terminal.write("q");
    terminal.shows("/help");
    terminal.write("/");
    terminal.shows("▸ /agents");
    pictures.take(&terminal, "commands");
    terminal.write("\u{15}\u{1b}[Z\u{1b}[Z");
    terminal.shows("plan mode");
    terminal.line("Plan how to mend nested lists");
    terminal.shows("Carry out this plan?");
    pictures.take(&terminal, "a-plan");
    terminal.line("n");
    terminal.write("\u{1b}[Z");
    terminal.line("!git --version; echo done");
    terminal.shows("│ done");
    terminal.write("see \u{1b}[200~");
    terminal.write(&"a long line of a log\r\n".repeat(3_214));
    terminal.write("\u{1b}[201~ and 日本語 👩‍🚀");
    terminal.shows("[pasted 3,214 lines]");
    pictures.take(&terminal, "a-paste-and-a-command");
    terminal.write("\u{15}");
    terminal.line("/undo");
    terminal.shows("Went back before");
    pictures.take(&terminal, "undo");
    terminal.write("\u{15}");
    terminal.write("\u{12}comm");
    terminal.shows("search: comm");
    pictures.take(&terminal, "search");
    terminal.write("\u{1b}");
    terminal.waits("the end of the search", |text| !text.contains("search:"));
    terminal.line("Please compare ways to keep a list");
    terminal.waits("the end of the answer", |text| text.contains("Perhaps both.") && text.contains(" out · $"));
    pictures.take(&terminal, "a-long-answer");
    terminal.line("/clear");
    terminal.shows("A new conversation");
    terminal.line("/help");
    terminal.shows("/cancel closes it");
    pictures.take(&terminal, "help");
    terminal.line("/resume");
    terminal.shows("Go on with");
    pictures.take(&terminal, "resume");
    terminal.write("\u{1b}");
    terminal.waits("the end of the list", |text| !text.contains("Go on with"));
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}
