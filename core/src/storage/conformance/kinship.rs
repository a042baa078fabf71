//! How a family is looked at: what its runs have used together, who is below whom, and one stream of all their events.

use super::Factory;
use super::rig::{Holder, ORG, Rig, for_signal, json};
use crate::client::{Client, FamilyWatching};
use crate::error::Code;
use crate::id::ExecutionId;
use crate::model::{
    BatchEnd, EventKind, ExecutionFilter, FamilyEvent, NewEvent, OpBody, PageRequest, RollUp, StreamEvent, Usage,
    UsageTotals, child_signal,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// A child of a run, claimed.
async fn child_of<'a>(rig: &'a Rig, parent: &mut Holder<'_>) -> Holder<'a> {
    let op = parent.child(json(&"otters"));
    let OpBody::Child(new) = &op.body else { unreachable!() };
    let id = new.id;
    parent.commit(vec![op]).await;
    rig.claim(id).await
}

fn used(input_tokens: u64, cost_micros: Option<u64>) -> Usage {
    Usage { calls: 1, input_tokens, output_tokens: 1, cost_micros, ..Usage::default() }
}

async fn use_model(run: &mut Holder<'_>, model: &str, usage: Usage) {
    let op = run.usage(model, usage);
    run.commit(vec![op]).await;
}

/// A run, two children of it, and a child of the first one, each with some usage.
async fn four(rig: &Rig) -> [Holder<'_>; 4] {
    let mut top = rig.running().await;
    let mut one = child_of(rig, &mut top).await;
    let mut two = child_of(rig, &mut top).await;
    let mut below = child_of(rig, &mut one).await;
    use_model(&mut top, "small", used(1, None)).await;
    use_model(&mut one, "small", used(20, Some(5))).await;
    use_model(&mut below, "small", used(300, None)).await;
    use_model(&mut below, "large", used(4_000, None)).await;
    let nothing = two.flush();
    two.commit(vec![nothing]).await;
    [top, one, two, below]
}

/// What a run and all below it have used comes in one answer, whoever is asked about; so do their numbers.
pub async fn family_09_usage_rolls_up(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let [top, one, two, below] = four(&rig).await;
    let sums = |parts: &[(&str, u64, u64, Option<u64>)]| {
        let sum = |(model, calls, input_tokens, cost_micros): &(&str, u64, u64, Option<u64>)| {
            let usage = Usage {
                calls: *calls,
                input_tokens: *input_tokens,
                output_tokens: *calls,
                cost_micros: *cost_micros,
                ..Usage::default()
            };
            ((*model).to_owned(), usage)
        };
        UsageTotals(parts.iter().map(sum).collect())
    };
    let large = ("large", 1, 4_000, None);
    let wanted = [
        (below.id, 0, 0, sums(&[("small", 1, 300, None), large])),
        (top.id, 2, 3, sums(&[("small", 3, 321, Some(5)), large])),
        (two.id, 0, 0, sums(&[])),
        (one.id, 1, 1, sums(&[("small", 2, 320, Some(5)), large])),
    ]
    .map(|(execution, children, descendants, usage)| RollUp { execution, children, descendants, usage });
    let asked = [below.id, top.id, ExecutionId::fresh(), two.id, one.id];
    assert_eq!(rig.storage.roll_ups(ORG, &asked).await.unwrap(), wanted);
    assert_eq!(rig.storage.roll_ups(ORG, &[]).await.unwrap(), []);
    assert_eq!(rig.storage.roll_ups(crate::id::OrgId::fresh(), &[]).await.unwrap(), []);
    // A child that was removed takes what it has used along.
    let mut below = below;
    below.end(vec![], BatchEnd::Complete(json(&1))).await;
    rig.storage.remove_execution(ORG, below.id).await.unwrap();
    let left = rig.storage.roll_ups(ORG, &[one.id]).await.unwrap();
    assert_eq!((left[0].children, &left[0].usage), (0, &sums(&[("small", 1, 20, Some(5))])));
}

/// A family is listed from its top down, as far as is asked for; those at the top of theirs are listed by themselves.
pub async fn a_family_is_listed_by_generation(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let [top, one, two, below] = four(&rig).await;
    let alone = rig.start().await;
    let listed = async |run: ExecutionId, limit| {
        let found = rig.storage.descendants(ORG, run, limit).await.unwrap();
        found.into_iter().map(|run| (run.new.id, run.depth)).collect::<Vec<_>>()
    };
    assert_eq!(listed(top.id, 10).await, [(one.id, 1), (two.id, 1), (below.id, 2)]);
    assert_eq!(listed(top.id, 2).await, [(one.id, 1), (two.id, 1)]);
    assert_eq!(listed(one.id, 10).await, [(below.id, 2)]);
    assert_eq!(listed(alone, 10).await, []);
    let strange = rig.storage.descendants(ORG, ExecutionId::fresh(), 10).await.unwrap_err();
    assert_eq!(strange.code(), Code::ExecutionNotFound);
    let roots = ExecutionFilter { roots: true, ..ExecutionFilter::default() };
    let page = PageRequest { limit: 10, after: None };
    let mut found: Vec<_> = rig.storage.executions(ORG, roots, page).await.unwrap().items;
    found.sort_by_key(|run| run.new.id != top.id);
    assert_eq!(found.iter().map(|run| run.new.id).collect::<Vec<_>>(), [top.id, alone]);
}

fn stream(rig: &Rig, run: ExecutionId, after: &str) -> FamilyWatching {
    Client::new(rig.storage.clone(), rig.storage.chunks(), ORG).watch_family(run, after)
}

/// The next durable event.
async fn next(reader: &mut FamilyWatching) -> Option<FamilyEvent> {
    let read = async {
        loop {
            match reader.next().await.unwrap() {
                Some(FamilyEvent { event: StreamEvent::Chunk(..) | StreamEvent::Gap(_), .. }) => {}
                other => return other,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("an event, or the end of the stream")
}

async fn all(reader: &mut FamilyWatching) -> Vec<FamilyEvent> {
    let mut events = Vec::new();
    while let Some(event) = next(reader).await {
        events.push(event);
    }
    events
}

/// The numbers of the events by run.
fn by_run(events: &[FamilyEvent]) -> BTreeMap<ExecutionId, Vec<u64>> {
    let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events {
        runs.entry(event.execution).or_default().push(event.event.id().number);
    }
    runs
}

fn is_end(event: &FamilyEvent) -> bool {
    matches!(&event.event, StreamEvent::Durable(event) if event.kind.is_terminal())
}

/// A stream of a family has every event of every run below, each once and in the order of its run, those of runs that are
/// born meanwhile too. It ends with the run that was asked for, and all that has ended by then.
pub async fn family_12_streams_multiplex(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut top = rig.running().await;
    let mut one = child_of(&rig, &mut top).await;
    let mut reader = stream(&rig, top.id, "");
    let mut seen = vec![next(&mut reader).await.unwrap()];
    // Born while the stream is open: a sibling, and a grandchild.
    let mut two = child_of(&rig, &mut top).await;
    let mut below = child_of(&rig, &mut one).await;
    while seen.iter().filter(|event| event.execution == below.id).count() < 2 {
        seen.push(next(&mut reader).await.unwrap());
    }
    top.suspend(vec![], for_signal(&child_signal(one.id))).await;
    below.end(vec![], BatchEnd::Complete(json(&"deep"))).await;
    one.known = rig.high(one.id).await;
    one.end(vec![], BatchEnd::Complete(json(&"found"))).await;
    two.end(vec![], BatchEnd::Complete(json(&"other"))).await;
    let mut top = rig.claim(top.id).await;
    top.end(vec![], BatchEnd::Complete(json(&"done"))).await;
    seen.extend(all(&mut reader).await);

    let mut wanted = BTreeMap::new();
    for (run, depth) in [(top.id, 0), (one.id, 1), (two.id, 1), (below.id, 2)] {
        wanted.insert(run, (1..=rig.high(run).await).collect::<Vec<_>>());
        assert!(seen.iter().filter(|event| event.execution == run).all(|event| event.depth == depth));
    }
    assert_eq!(by_run(&seen), wanted);
    assert_eq!(seen.iter().filter(|event| is_end(event)).count(), 4);
    assert!(next(&mut reader).await.is_none(), "it stays at its end");
    // It goes on behind each of them, with nothing twice and nothing left out.
    for (place, event) in seen.iter().enumerate() {
        let again = all(&mut stream(&rig, top.id, &event.cursor)).await;
        let mut together = by_run(&seen[..=place]);
        by_run(&again).into_iter().for_each(|(run, numbers)| together.entry(run).or_default().extend(numbers));
        assert_eq!(together, wanted, "after {place}: {}", event.cursor);
    }
    let last = seen.last().unwrap().cursor.clone();
    assert!(!stream(&rig, top.id, &last).begin().await.unwrap() || rig.storage.families().is_none());
    // Below a child the same, without those above.
    let below_one = by_run(&all(&mut stream(&rig, one.id, "")).await);
    assert_eq!(below_one.keys().collect::<Vec<_>>(), {
        let mut both = [&one.id, &below.id];
        both.sort();
        both
    });
}

/// Whoever goes on although the run above all has ended is not waited for; what has ended is given whole.
pub async fn family_12_a_stream_ends_with_its_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut top = rig.running().await;
    let mut ends = child_of(&rig, &mut top).await;
    let goes_on = child_of(&rig, &mut top).await;
    let events = (0..100).map(|_| warning()).collect();
    let batch = crate::model::Batch { events, ..ends.batch(vec![], BatchEnd::Complete(json(&1))) };
    ends.commit_batch(batch).await;
    top.known = rig.high(top.id).await;
    top.end(vec![], BatchEnd::Complete(json(&"done"))).await;
    let seen = all(&mut stream(&rig, top.id, "")).await;
    let runs = by_run(&seen);
    assert_eq!(runs[&ends.id], (1..=rig.high(ends.id).await).collect::<Vec<_>>());
    assert_eq!(runs[&top.id], (1..=rig.high(top.id).await).collect::<Vec<_>>());
    assert!(seen.iter().filter(|event| event.execution == goes_on.id).all(|event| !is_end(event)));
}

fn warning() -> NewEvent {
    NewEvent { kind: EventKind::Warning, sequence: None, data: serde_json::json!({ "message": "much to tell" }) }
}

/// A run that has much to tell delays nobody: the end of its sibling, which comes after all of it, is given long before all
/// of it is.
pub async fn family_12_a_flood_delays_nobody(factory: &dyn Factory) {
    const FLOOD: usize = 10_000;
    let rig = Rig::new(factory).await;
    let mut top = rig.running().await;
    let mut floods = child_of(&rig, &mut top).await;
    let mut ends = child_of(&rig, &mut top).await;
    let is_flood =
        |event: &FamilyEvent| matches!(&event.event, StreamEvent::Durable(event) if event.kind == EventKind::Warning);
    let mut seen = 0;
    for _ in 0..10 {
        let events = (0..FLOOD / 10).map(|_| warning()).collect();
        let batch = crate::model::Batch { events, ..floods.batch(vec![], BatchEnd::Continue) };
        floods.commit_batch(batch).await;
    }
    ends.end(vec![], BatchEnd::Complete(json(&1))).await;
    // A reader that comes now finds all of it: what was sent before there was an end is no delay.
    let mut reader = stream(&rig, top.id, "");
    loop {
        let event = next(&mut reader).await.unwrap();
        if is_end(&event) {
            assert_eq!(event.execution, ends.id);
            break;
        }
        seen += usize::from(is_flood(&event));
    }
    assert!(seen < FLOOD / 10 * 9, "{seen} events were given before an end");
    // From there on as well: what is left of the flood comes whole, and whoever reads no more holds nobody up.
    let mut again = stream(&rig, top.id, reader.cursor());
    floods.end(vec![], BatchEnd::Complete(json(&2))).await;
    loop {
        let event = next(&mut again).await.unwrap();
        if is_end(&event) {
            break;
        }
        seen += usize::from(is_flood(&event));
    }
    assert_eq!(seen, FLOOD);
}

/// What no stream has given is refused, and what names another family gives nothing of it.
pub async fn family_12_a_cursor_is_of_its_family(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut top = rig.running().await;
    let mut other = rig.running().await;
    let stranger = child_of(&rig, &mut other).await;
    for (wrong, code) in [("x", Code::InvalidArgument), ("1~x", Code::InvalidArgument), ("99", Code::InvalidArgument)] {
        assert_eq!(stream(&rig, top.id, wrong).next().await.unwrap_err().code(), code, "{wrong}");
    }
    let missing = stream(&rig, ExecutionId::fresh(), "").next().await.unwrap_err();
    assert_eq!(missing.code(), Code::ExecutionNotFound);
    let forged: String = (1..100).map(|_| "_1.0").collect();
    let mut reader = stream(&rig, top.id, &format!("0~100{forged}"));
    top.end(vec![], BatchEnd::Complete(json(&1))).await;
    let runs = by_run(&all(&mut reader).await);
    assert!(!runs.contains_key(&stranger.id) && !runs.contains_key(&other.id) && runs.contains_key(&top.id));
}
