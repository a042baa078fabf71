//! `flovyn runs entries`: the conversation, as the branch the run stands on or as the whole tree.

use crate::args::Entries;
use crate::event::content_text;
use crate::print::{Output, short};
use crate::target::{Run, Target};
use crate::{Result, view};
use flovyn_core::id::EntryId;
use flovyn_core::model::{Entry, PageRequest};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};

pub(super) async fn entries(args: Entries, out: &mut Output) -> Result {
    let run = Target::parse(args.words.words, &["ID"])?.run().await?;
    let branch = run.handle.messages().await?;
    let on_branch: HashSet<EntryId> = branch.iter().map(|entry| entry.new.id).collect();
    let entries = if args.tree { all_entries(&run, branch).await? } else { branch };
    if out.is_json() {
        let items: Vec<_> = entries.iter().map(|entry| view::entry(entry, on_branch.contains(&entry.new.id))).collect();
        return out.value(&json!({ "items": items, "nextCursor": null }));
    }
    if entries.is_empty() {
        return out.line("no entries");
    }
    if args.tree {
        let lines = Tree::of(&entries, &on_branch).lines(|entry| line(entry, out));
        return lines.iter().try_for_each(|line| out.line(line));
    }
    entries.iter().try_for_each(|entry| out.line(&line(entry, out)))
}

/// The branch, which may begin in a parent run, and all entries that the run itself appended, on all of its branches.
async fn all_entries(run: &Run, branch: Vec<Entry>) -> Result<Vec<Entry>> {
    let mut all: BTreeMap<EntryId, Entry> = branch.into_iter().map(|entry| (entry.new.id, entry)).collect();
    let mut request = PageRequest { limit: 1_000, after: None };
    loop {
        let page = run.handle.entries(request.clone()).await?;
        all.extend(page.items.into_iter().map(|entry| (entry.new.id, entry)));
        match page.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|entry| (entry.depth, entry.created_at, entry.slot));
    Ok(all)
}

fn line(entry: &Entry, out: &Output) -> String {
    let id = entry.new.id.to_string();
    let text = content_text(&view::entry(entry, true)["content"]);
    let role = match entry.new.entry_type.as_str() {
        "message" => entry.new.role.clone(),
        other => format!("{} ({other})", entry.new.role),
    };
    format!("{}  {role}: {}", out.dim(&id), short(&text, 400))
}

/// Entries by the entry they follow.
struct Tree<'a> {
    children: BTreeMap<Option<EntryId>, Vec<&'a Entry>>,
    on_branch: &'a HashSet<EntryId>,
}

impl<'a> Tree<'a> {
    fn of(entries: &'a [Entry], on_branch: &'a HashSet<EntryId>) -> Self {
        let ids: HashSet<_> = entries.iter().map(|entry| entry.new.id).collect();
        let mut children: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in entries {
            let parent = entry.new.parent.filter(|parent| ids.contains(parent));
            children.entry(parent).or_default().push(entry);
        }
        Self { children, on_branch }
    }

    /// Draws the tree depth first. The text moves to the right only where an entry has several children.
    fn lines(&self, text: impl Fn(&Entry) -> String) -> Vec<String> {
        let mut lines = Vec::new();
        let mut stack = self.next(None, "");
        while let Some((entry, prefix)) = stack.pop() {
            let mark = if self.on_branch.contains(&entry.new.id) { "*" } else { " " };
            lines.push(format!("{mark} {prefix}{}", text(entry)));
            stack.extend(self.next(Some(entry.new.id), &prefix));
        }
        lines
    }

    /// The children of an entry, each with the prefix of its line. The last child comes first, since they go on a
    /// stack.
    fn next(&self, parent: Option<EntryId>, prefix: &str) -> Vec<(&'a Entry, String)> {
        let Some(children) = self.children.get(&parent) else { return Vec::new() };
        let lead = prefix.replace("├─ ", "│  ").replace("└─ ", "   ");
        let count = children.len();
        let lines = children.iter().enumerate().map(|(index, entry)| match (count, index + 1 == count) {
            (1, _) => (*entry, lead.clone()),
            (_, false) => (*entry, format!("{lead}├─ ")),
            (_, true) => (*entry, format!("{lead}└─ ")),
        });
        let mut lines: Vec<_> = lines.collect();
        lines.reverse();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::Payload;
    use flovyn_core::clock::Timestamp;
    use flovyn_core::id::{ExecutionId, Slot};
    use flovyn_core::model::NewEntry;

    fn entry(id: u128, parent: Option<u128>) -> Entry {
        let id_of = |number: u128| ExecutionId::default().to_string().replace("00000000-", &format!("{number:08}-"));
        let parse = |number: u128| id_of(number).parse::<EntryId>().unwrap();
        Entry {
            new: NewEntry {
                id: parse(id),
                parent: parent.map(parse),
                thread: String::new(),
                role: id.to_string(),
                entry_type: "message".into(),
                content: Payload::null(),
                turn_id: None,
                metadata: None,
            },
            execution: ExecutionId::default(),
            slot: Slot::default(),
            depth: 0,
            created_at: Timestamp::default(),
        }
    }

    #[test]
    fn branches_are_drawn_where_they_begin() {
        let parents = [(1, None), (2, Some(1)), (3, Some(1)), (4, Some(2)), (5, Some(4)), (6, Some(3)), (7, Some(3))];
        let entries: Vec<_> = parents.into_iter().map(|(id, parent)| entry(id, parent)).collect();
        let on_branch: HashSet<_> = [0, 2, 6].map(|place: usize| entries[place].new.id).into();
        let drawn = Tree::of(&entries, &on_branch).lines(|entry| entry.new.role.clone());
        assert_eq!(drawn, ["* 1", "  ├─ 2", "  │  4", "  │  5", "* └─ 3", "     ├─ 6", "*    └─ 7"]);
    }

    #[test]
    fn an_entry_whose_parent_is_not_shown_is_a_root() {
        let entries = [entry(2, Some(1)), entry(3, Some(2))];
        let drawn = Tree::of(&entries, &HashSet::new()).lines(|entry| entry.new.role.clone());
        assert_eq!(drawn, ["  2", "  3"]);
    }
}
