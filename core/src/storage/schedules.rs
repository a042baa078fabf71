//! The port for schedules, when their ticks are, and the start of the runs whose tick has come.
//!
//! Every process may start them: the id of a run follows from its schedule and tick, and a schedule moves on from a tick once.

use super::Storage;
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::model::{MAX_ID, NewExecution, Page, PageRequest, Schedule, ScheduleSpec};
use crate::payload::Payload;
use async_trait::async_trait;
use croner::Cron;
use croner::errors::CronError;
use jiff::tz::TimeZone;

/// The largest input, in bytes.
const MAX_INPUT: usize = 64 << 10;
/// Schedules that are dealt with at once.
pub(super) const SHARE: usize = 100;

/// Schedules of orgs.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Makes a schedule, or replaces the one of its id; its ticks count from now.
    ///
    /// Errors: `InvalidArgument` for a pattern or a time zone that cannot be read, a pattern that never comes, no kind, a
    /// name or an input that is too long, an input that is no JSON.
    async fn put_schedule(&self, org: OrgId, spec: ScheduleSpec) -> Result<Schedule>;

    /// One schedule; `NotFound` where the org has none of this id.
    async fn schedule(&self, org: OrgId, id: &str) -> Result<Schedule>;

    /// The schedules of an org, by id.
    async fn schedules(&self, org: OrgId, page: PageRequest) -> Result<Page<Schedule>>;

    /// Removes a schedule; its runs stay. `NotFound` where the org has none of this id.
    async fn delete_schedule(&self, org: OrgId, id: &str) -> Result<()>;

    /// Schedules of every org whose tick has come, earliest first; some of them, where there are many. For housekeeping.
    async fn due_schedules(&self) -> Result<Vec<Schedule>>;

    /// Moves a schedule on from a tick; nothing happens where it stands at another by now. For housekeeping.
    async fn advance_schedule(&self, org: OrgId, id: &str, from: Timestamp, to: Option<Timestamp>) -> Result<()>;
}

/// Starts the runs whose tick has come, and moves their schedules on to the first tick that has not.
///
/// A schedule that missed several ticks gets one run, for the first of them.
pub async fn start_due(storage: &dyn Storage) -> Result<()> {
    for schedule in storage.due_schedules().await? {
        let Some(tick) = schedule.next_at else { continue };
        let created = match new_run(&schedule, tick) {
            Ok(new) => storage.create_execution(new).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = created {
            if error.is_retryable() {
                return Err(error);
            }
            let (org, id) = (schedule.org, &schedule.spec.id);
            tracing::warn!(%org, schedule = id, %tick, %error, "a scheduled run cannot be started; its tick is passed over");
        }
        let now = storage.clock().now().max(tick);
        let next = next_tick(&schedule.spec, now).unwrap_or_else(|error| {
            tracing::warn!(org = %schedule.org, schedule = %schedule.spec.id, %error, "a schedule has no ticks any more");
            None
        });
        storage.advance_schedule(schedule.org, &schedule.spec.id, tick, next).await?;
    }
    Ok(())
}

fn new_run(schedule: &Schedule, tick: Timestamp) -> Result<NewExecution> {
    let spec = &schedule.spec;
    let mut new = NewExecution::new(schedule.run_of(tick), &spec.kind, Payload::json(spec.input.clone().into_bytes()))?;
    new.org = schedule.org;
    new.queue.clone_from(&spec.queue);
    new.metadata.clone_from(&spec.metadata);
    new.metadata.insert("schedule".into(), spec.id.clone());
    new.metadata.insert("scheduledAt".into(), tick.to_string());
    new.priority = spec.priority;
    new.concurrency_key.clone_from(&spec.concurrency_key);
    new.concurrency_limit = spec.concurrency_limit;
    Ok(new)
}

/// The first tick of a schedule that is to be made; none while it is paused.
pub(super) fn first_tick(spec: &ScheduleSpec, now: Timestamp) -> Result<Option<Timestamp>> {
    let length = spec.id.chars().count();
    if !(1..=MAX_ID).contains(&length) {
        return Err(wrong(format!("the id of a schedule has 1 to {MAX_ID} characters, but {length} were given")));
    }
    if spec.kind.is_empty() || spec.queue.is_empty() {
        return Err(wrong("a schedule needs the kind of an agent and a queue; name them".into()));
    }
    spec.check()?;
    if spec.cron.len() > MAX_ID {
        return Err(wrong(format!("a cron pattern has at most {MAX_ID} bytes, but {} were given", spec.cron.len())));
    }
    if spec.input.len() > MAX_INPUT {
        let size = spec.input.len();
        return Err(wrong(format!("the input of a schedule has at most {MAX_INPUT} bytes, but {size} were given")));
    }
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&spec.input) {
        return Err(wrong(format!("the input of a schedule is no JSON: {error}")));
    }
    let next = next_tick(spec, now)?;
    let next = next.ok_or_else(|| wrong(format!("the cron pattern {:?} never comes", spec.cron)))?;
    Ok((!spec.paused).then_some(next))
}

/// The first tick after a moment; none if there is no more.
fn next_tick(spec: &ScheduleSpec, after: Timestamp) -> Result<Option<Timestamp>> {
    let unreadable = |error: CronError| {
        let form = "write minute, hour, day of month, month and day of week, such as `0 8 * * MON-FRI`";
        wrong(format!("{:?} is no cron pattern ({error}); {form}", spec.cron))
    };
    let cron: Cron = spec.cron.parse().map_err(unreadable)?;
    let zone = match &spec.timezone {
        None => TimeZone::UTC,
        Some(name) => TimeZone::get(name).map_err(|error| {
            wrong(format!("{name:?} is no time zone known here ({error}); use an IANA name such as Europe/Paris"))
        })?,
    };
    let moment = jiff::Timestamp::from_microsecond(after.0)
        .map_err(|error| wrong(format!("the moment {after} cannot be reckoned with: {error}")))?;
    match cron.find_next_occurrence(&moment.to_zoned(zone), false) {
        Ok(next) => Ok(Some(Timestamp(next.timestamp().as_microsecond()))),
        Err(CronError::TimeSearchLimitExceeded) => Ok(None),
        Err(error) => Err(unreadable(error)),
    }
}

fn wrong(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(cron: &str, timezone: Option<&str>) -> ScheduleSpec {
        ScheduleSpec {
            id: "s".into(),
            kind: "agent".into(),
            queue: "default".into(),
            input: "null".into(),
            cron: cron.into(),
            timezone: timezone.map(Into::into),
            metadata: Default::default(),
            priority: 0,
            concurrency_key: None,
            concurrency_limit: None,
            paused: false,
        }
    }

    #[test]
    fn ticks_are_of_the_clock_of_their_zone() {
        let next = |cron: &str, zone: Option<&str>, after: &str| {
            next_tick(&spec(cron, zone), after.parse().unwrap()).unwrap().map(|at| at.to_string())
        };
        let after = "2026-03-28T12:00:30Z";
        assert_eq!(next("* * * * *", None, after).unwrap(), "2026-03-28T12:01:00.000Z");
        assert_eq!(next("*/10 * * * * *", None, after).unwrap(), "2026-03-28T12:00:40.000Z");
        assert_eq!(next("0 8 * * MON-FRI", None, after).unwrap(), "2026-03-30T08:00:00.000Z");
        assert_eq!(next("@daily", None, after).unwrap(), "2026-03-29T00:00:00.000Z");
        // A tick at the moment itself has been.
        assert_eq!(next("* * * * *", None, "2026-03-28T12:00:00Z").unwrap(), "2026-03-28T12:01:00.000Z");
        // Summer time begins at 01:00 UTC of the 29th in Paris: eight in the morning comes an hour sooner.
        assert_eq!(
            next("0 8 * * *", Some("Europe/Paris"), "2026-03-27T12:00:00Z").unwrap(),
            "2026-03-28T07:00:00.000Z"
        );
        assert_eq!(next("0 8 * * *", Some("Europe/Paris"), after).unwrap(), "2026-03-29T06:00:00.000Z");
        assert_eq!(next("0 0 0 1 1 * 2020", None, after), None);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let now = Timestamp(1_700_000_000_000_000);
        let refused = |change: &dyn Fn(&mut ScheduleSpec)| {
            let mut spec = spec("@hourly", None);
            change(&mut spec);
            let error = first_tick(&spec, now).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        };
        assert!(first_tick(&spec("@hourly", None), now).is_ok());
        refused(&|spec| spec.cron = "every day".into());
        refused(&|spec| spec.cron = String::new());
        refused(&|spec| spec.cron = "0 0 30 2 *".into());
        refused(&|spec| spec.timezone = Some("Mars/Olympus".into()));
        refused(&|spec| spec.input = "{".into());
        refused(&|spec| spec.input = format!("\"{}\"", "x".repeat(MAX_INPUT)));
        refused(&|spec| spec.id = String::new());
        refused(&|spec| spec.id = "x".repeat(MAX_ID + 1));
        refused(&|spec| spec.kind = String::new());
    }
}
