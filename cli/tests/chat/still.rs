//! A chat in which nothing moves costs nothing, however long it is open.

use super::terminal::Terminal;
use super::*;

/// How long the processors are looked at.
const WINDOW: Duration = Duration::from_secs(2);
/// The most that may be used in it, by a program that is not optimized.
const MOST: Duration = Duration::from_millis(50);

/// Looks how much a chat uses in a while in which nothing happens.
fn rests(what: &str, terminal: &Terminal) {
    // What led here may still be written down, so one quiet look is enough.
    let mut looks = (0..5).map(|_| {
        let before = terminal.busy_time();
        std::thread::sleep(WINDOW);
        terminal.busy_time() - before
    });
    assert!(looks.any(|used| used <= MOST), "{what} uses more than {MOST:?} of {WINDOW:?}\n{}", terminal.text());
}

#[test]
fn a_question_and_an_idle_chat_cost_nothing() {
    let user = User::new();
    let fake = user.script("[[turns]]\ntoolCalls = [{ name = \"bash\", arguments = { command = \"ls\" } }]\n[otherwise]\ntext = \"Done.\"\n");
    let mut terminal = Terminal::chat(&user, &[&fake, "--unsandboxed"]);
    terminal.shows("/help");
    rests("an idle chat", &terminal);
    terminal.line("Go");
    terminal.shows("Allow it?");
    rests("a question", &terminal);
    terminal.line("y");
    terminal.shows("Done.");
    terminal.line("!sleep 600");
    terminal.shows("● ! sleep 600");
    rests("a command of the user", &terminal);
    terminal.write("\u{3}");
    terminal.waits("the end of the command", |text| text.contains("│") || text.contains("exit"));
    terminal.line("/quit");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn an_outage_costs_nothing() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntext = \"Never.\"\nfaults = [{ status = { code = 529, retryAfter = 600.0 }, times = 9 }]\n",
    );
    let terminal = Terminal::chat(&user, &[&fake, "Go"]);
    terminal.shows("◦ waiting");
    rests("an outage", &terminal);
    terminal.kill();
}
