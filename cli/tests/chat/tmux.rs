//! The chat in tmux, which is a terminal of its own: it knows no keyboard protocol of kitty, breaks rows anew when it is resized, and
//! keeps what scrolls away.

use super::*;

/// A tmux with one shell in it, on a socket of its own.
struct Tmux<'a> {
    user: &'a User,
}

impl<'a> Tmux<'a> {
    fn start(user: &'a User) -> Self {
        let tmux = Self { user };
        tmux.run(&["new-session", "-d", "-x", "90", "-y", "30", "PS1='ready> ' exec sh -i"]);
        tmux.shows("ready>");
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", "flovyn", "-f", "/dev/null"]).args(args).current_dir(self.user.project()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TERM", "xterm-256color");
        command.env("HOME", self.user.folder.path()).env("FLOVYN_HOME", self.user.folder.path().join("home"));
        command.env("TMUX_TMPDIR", self.user.folder.path()).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        let output = command.output().expect("tmux, which `make setup` installs");
        assert!(output.status.success(), "{args:?}: {}", told(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is on the screen.
    fn text(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// What is on the screen and what has left it.
    fn whole(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-"])
    }

    fn waits(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let since = Instant::now();
        loop {
            let text = self.text();
            if holds(&text) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{what:?} does not come; the screen is\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn shows(&self, wanted: &str) {
        self.waits(wanted, |text| text.contains(wanted));
    }

    fn types(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    fn presses(&self, key: &str) {
        self.run(&["send-keys", key]);
    }

    fn pastes(&self, text: &str) {
        self.run(&["set-buffer", text]);
        // With the marks of a paste where the program in it wants them.
        self.run(&["paste-buffer", "-p", "-r"]);
    }

    /// How the shell finds the terminal.
    fn modes(&self, name: &str) -> String {
        let file = self.user.project().join(name);
        self.types(&format!("stty -g > {name}; echo 'it is' written"));
        self.presses("Enter");
        self.shows("it is written");
        let flags =
            self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag} #{insert_flag} #{keypad_flag}"]);
        std::fs::read_to_string(file).expect("the modes") + &flags
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn a_conversation_in_tmux() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntext = \"Heard: {{lastUser}}\"\n\
         [[turns]]\ntext = \"```\\nrow {{pad:2000}}\\n```\\n\\nThe *end* of it.\"\n",
    );
    let tmux = Tmux::start(&user);
    let before = tmux.modes("before");
    tmux.types(&format!("'{}' chat {fake}", env!("CARGO_BIN_EXE_flovyn")));
    tmux.presses("Enter");
    tmux.shows("/help");
    let colours = tmux.run(&["capture-pane", "-p", "-e"]);
    assert!(colours.contains("\u{1b}[36m"), "the mark of the line has its colour\n{colours:?}");

    // A paste is not sent, whatever line ends it has. Where no protocol tells Shift-Enter from Enter, two keys are left.
    tmux.pastes("one\r\ntwo\r\n");
    tmux.waits("the paste", |text| text.contains("› one\n  two\n"));
    tmux.types("three");
    tmux.presses("M-Enter");
    tmux.types("four");
    tmux.presses("C-j");
    tmux.types("five\\");
    tmux.presses("Enter");
    tmux.types("six");
    tmux.waits("six lines", |text| text.contains("› one\n  two\n  three\n  four\n  five\n  six\n"));
    tmux.presses("Enter");
    tmux.shows("Heard: one two three four five six");
    tmux.shows("cost unknown");

    // A line that is being written is broken anew by tmux, and the cursor with it.
    tmux.types(&"w".repeat(80));
    for (columns, first) in [("50", 47), ("110", 80), ("70", 67)] {
        tmux.run(&["resize-window", "-x", columns, "-y", "20"]);
        let row = format!("› {}\n", "w".repeat(first));
        tmux.waits(&format!("the line at {columns} columns"), |text| text.contains(&row));
    }
    tmux.presses("C-u");
    tmux.waits("an empty line", |text| text.contains("›\n") && !text.contains("› w"));
    let whole = tmux.whole();
    assert!(!whole.contains("ww") && whole.contains("cost unknown\n\n›\n"), "nothing is left of it\n{whole}");
    assert_eq!((whole.matches("Heard:").count(), whole.matches("cost unknown").count()), (1, 1), "{whole}");
    assert_eq!(tmux.text().matches("fake/scripted · context").count(), 1, "one footer\n{whole}");

    tmux.types("more");
    tmux.presses("Enter");
    tmux.shows("The end of it.");
    tmux.waits("the end of the turn", |text| !text.contains("Ctrl-C stops"));
    let whole = tmux.whole();
    let words = |text: &str| text.split_whitespace().filter(|word| *word == "lorem").count();
    assert!(
        words(&whole) > words(&tmux.text()) && whole.contains("row lorem"),
        "what left the screen is kept\n{whole}"
    );

    tmux.types("/quit");
    tmux.presses("Enter");
    tmux.shows("goes on with this session");
    tmux.waits("the shell", |text| text.trim_end().ends_with("ready>"));
    assert_eq!(tmux.modes("after"), before, "the terminal is as it was");
    tmux.pastes("echo pas'ted'");
    tmux.presses("Enter");
    tmux.waits("no marks of a paste", |text| text.contains("\npasted\n"));
    assert!(!tmux.text().contains("200~"), "{}", tmux.text());
}
