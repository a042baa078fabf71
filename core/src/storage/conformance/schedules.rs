//! Schedules: how they are kept, and that each tick starts one run.

use super::Factory;
use super::rig::{AGENT, ORG, Rig, refused};
use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::OrgId;
use crate::model::{Cursor, ExecutionFilter, PageRequest, Schedule, ScheduleSpec};
use crate::storage::schedules::start_due;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn spec(id: &str) -> ScheduleSpec {
    ScheduleSpec {
        id: id.into(),
        kind: AGENT.into(),
        queue: "default".into(),
        input: r#"{"report":"daily"}"#.into(),
        cron: "* * * * *".into(),
        ..ScheduleSpec::default()
    }
}

fn ids(page: &crate::model::Page<Schedule>) -> Vec<&str> {
    page.items.iter().map(|schedule| schedule.spec.id.as_str()).collect()
}

/// The runs of the org, oldest first: when each was to start.
async fn runs(rig: &Rig) -> Vec<String> {
    let page = rig.storage.executions(ORG, ExecutionFilter::default(), PageRequest::default()).await.unwrap();
    page.items.iter().rev().map(|run| run.new.metadata["scheduledAt"].clone()).collect()
}

/// A schedule is kept as it was made until it is replaced or removed; other orgs never see it.
pub async fn a_schedule_is_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut whole = ScheduleSpec {
        timezone: Some("UTC".into()),
        metadata: [("team".to_owned(), "otters".to_owned())].into(),
        priority: -3,
        concurrency_key: Some("k".into()),
        ..spec("b")
    };
    let made = rig.storage.put_schedule(ORG, whole.clone()).await.unwrap();
    let next_at = Some(Timestamp(1_700_000_040_000_000));
    assert_eq!(made, Schedule { org: ORG, spec: whole.clone(), next_at, created_at: rig.now() });
    assert_eq!(rig.storage.schedule(ORG, "b").await.unwrap(), made);
    for id in ["c", "a", "d"] {
        rig.storage.put_schedule(ORG, spec(id)).await.unwrap();
    }
    let other = OrgId(rig.uuid());
    rig.storage.put_schedule(other, spec("e")).await.unwrap();
    let page = |limit, after: Option<Cursor>| rig.storage.schedules(ORG, PageRequest { limit, after });
    let first = page(3, None).await.unwrap();
    assert_eq!(ids(&first), ["a", "b", "c"]);
    let second = page(3, first.next.clone()).await.unwrap();
    assert_eq!((ids(&second), &second.next), (vec!["d"], &None));
    assert_eq!(refused(page(0, None).await), Code::InvalidArgument);

    whole.cron = "@hourly".into();
    rig.clock.advance(MINUTE);
    let replaced = rig.storage.put_schedule(ORG, whole.clone()).await.unwrap();
    assert_eq!((replaced.next_at, replaced.created_at), (Some(Timestamp(1_700_002_800_000_000)), rig.now()));
    assert_eq!(rig.storage.schedule(ORG, "b").await.unwrap(), replaced);
    let wrong = ScheduleSpec { cron: "never".into(), ..whole };
    assert_eq!(refused(rig.storage.put_schedule(ORG, wrong).await), Code::InvalidArgument);
    assert_eq!(rig.storage.schedule(ORG, "b").await.unwrap(), replaced);

    assert_eq!(refused(rig.storage.delete_schedule(other, "b").await), Code::NotFound);
    rig.storage.delete_schedule(ORG, "b").await.unwrap();
    assert_eq!(refused(rig.storage.delete_schedule(ORG, "b").await), Code::NotFound);
    assert_eq!(refused(rig.storage.schedule(ORG, "b").await), Code::NotFound);
    assert_eq!(ids(&page(9, None).await.unwrap()), ["a", "c", "d"]);
}

/// A paused schedule starts nothing, and goes on from the moment it is put again.
pub async fn a_paused_schedule_rests(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let keeper = rig.keeper().clone();
    rig.storage.put_schedule(ORG, spec("report")).await.unwrap();
    let paused = ScheduleSpec { paused: true, ..spec("report") };
    let resting = rig.storage.put_schedule(ORG, paused.clone()).await.unwrap();
    assert_eq!((resting.next_at, &resting.spec), (None, &paused));
    rig.clock.advance(MINUTE * 5);
    start_due(&*keeper).await.unwrap();
    assert!(runs(&rig).await.is_empty());
    assert_eq!(rig.storage.schedule(ORG, "report").await.unwrap(), resting);
    let wrong = ScheduleSpec { cron: "never".into(), ..paused };
    assert_eq!(refused(rig.storage.put_schedule(ORG, wrong).await), Code::InvalidArgument);
    let again = rig.storage.put_schedule(ORG, spec("report")).await.unwrap();
    let tick = again.next_at.unwrap();
    assert!(tick > rig.now() && tick <= rig.now().after(MINUTE));
    rig.clock.advance(MINUTE);
    start_due(&*keeper).await.unwrap();
    assert_eq!(runs(&rig).await, [tick.to_string()]);
}

/// Each tick starts one run, however many processes keep house; missed ticks are made good by one.
pub async fn each_tick_starts_one_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let keeper = rig.keeper().clone();
    let made = rig.storage.put_schedule(ORG, spec("report")).await.unwrap();
    let tick = made.next_at.unwrap();
    assert_eq!(rig.pass().await, Some(tick));
    start_due(&*keeper).await.unwrap();
    assert!(runs(&rig).await.is_empty());

    assert_eq!(rig.pass_after(tick.since(rig.now())).await, Some(tick));
    for done in futures::future::join_all((0..4).map(|_| start_due(&*keeper))).await {
        done.unwrap();
    }
    assert_eq!(runs(&rig).await, [tick.to_string()]);
    let run = rig.execution(made.run_of(tick)).await;
    assert_eq!((run.new.kind.as_str(), run.new.metadata["schedule"].as_str()), (AGENT, "report"));
    assert_eq!(run.new.input.parse::<serde_json::Value>().unwrap(), serde_json::json!({ "report": "daily" }));
    assert_eq!(rig.pass().await, Some(tick.after(MINUTE)));
    assert!(rig.try_claim(run.new.id).await.is_some());

    // Nobody kept house for a while.
    rig.clock.advance(MINUTE * 5 + MINUTE / 2);
    start_due(&*keeper).await.unwrap();
    start_due(&*keeper).await.unwrap();
    assert_eq!(runs(&rig).await, [tick.to_string(), tick.after(MINUTE).to_string()]);
    assert_eq!(rig.storage.schedule(ORG, "report").await.unwrap().next_at, Some(tick.after(MINUTE * 6)));

    rig.storage.delete_schedule(ORG, "report").await.unwrap();
    rig.clock.advance(MINUTE * 2);
    start_due(&*keeper).await.unwrap();
    assert_eq!(runs(&rig).await.len(), 2);
}

/// A tick whose run cannot be started is passed over; the others go on.
pub async fn a_tick_that_cannot_start_is_passed_over(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let keeper = rig.keeper().clone();
    let made = rig.storage.put_schedule(ORG, spec("first")).await.unwrap();
    rig.storage.put_schedule(ORG, spec("second")).await.unwrap();
    let tick = made.next_at.unwrap();
    // Its place is taken by a run of another kind.
    rig.start_as(|new| {
        new.id = made.run_of(tick);
        new.kind = "other".into();
        new.metadata.insert("scheduledAt".into(), "by hand".into());
    })
    .await;
    rig.clock.advance(MINUTE);
    start_due(&*keeper).await.unwrap();
    assert_eq!(runs(&rig).await, ["by hand".to_owned(), tick.to_string()]);
    assert_eq!(rig.storage.schedule(ORG, "first").await.unwrap().next_at, Some(tick.after(MINUTE)));
}
