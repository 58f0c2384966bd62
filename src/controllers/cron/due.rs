//! When the next Job of a CronJob is to be made.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>, "Job creation" and "Time zones".

use jiff::tz::{Offset, TimeZone};

use super::super::pod::seconds;
use crate::resources::Schedule;
use crate::scalars::zone;
use crate::tree::Value;

/// Missed times that are passed over in silence.
const MISSED_MAX: i64 = 100;

/// A schedule in its time zone.
pub(super) struct Timetable {
    schedule: Schedule,
    zone: TimeZone,
    is_zone_named: bool,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The next time has not come.
    Later,
    /// The newest time that has come, Unix seconds, and whether very many were missed before it.
    At { time_s: i64, missed_many: bool },
}

impl Timetable {
    /// # Errors
    /// The reason and the text of an Event.
    pub(super) fn of(cron_job: &Value) -> Result<Self, (&'static str, String)> {
        let name = cron_job["spec"]["timeZone"].as_str().unwrap_or("");
        let unknown = || {
            (
                "UnknownTimeZone",
                format!("invalid timeZone: \"{name}\": unknown time zone {name}"),
            )
        };
        let text = cron_job["spec"]["schedule"].as_str().unwrap_or("");
        let schedule = Schedule::parse(text).map_err(|wrong| {
            (
                "UnparseableSchedule",
                format!("unparseable schedule: \"{text}\" : {wrong}"),
            )
        })?;
        Ok(Self {
            schedule,
            zone: zone::of(name).ok_or_else(unknown)?,
            is_zone_named: !name.is_empty(),
        })
    }

    /// The first time after `after_s`.
    pub(super) fn after(&self, after_s: i64) -> Option<i64> {
        self.schedule.next(after_s, &self.zone)
    }

    /// The newest time that has come since the last one that was seen to.
    pub(super) fn due(&self, cron_job: &Value, now_s: i64) -> Due {
        let created = seconds(&cron_job["metadata"]["creationTimestamp"]);
        let last = seconds(&cron_job["status"]["lastScheduleTime"]);
        let mut since = last.or(created).unwrap_or(now_s);
        if let Some(deadline_s) = cron_job["spec"]["startingDeadlineSeconds"].as_i64() {
            // What was missed before is of no interest any more.
            since = since.max(now_s.saturating_sub(deadline_s));
        }
        let Some(first) = self.after(since).filter(|first| *first <= now_s) else {
            return Due::Later;
        };
        let Some(second) = self.after(first).filter(|second| *second <= now_s) else {
            return Due::At {
                time_s: first,
                missed_many: false,
            };
        };
        // Times are passed over by the distance of the first two, and counted one by one at the end: schedules whose times lie at uneven
        // distances are told by less than one of them.
        let period = (second - first).max(1);
        let passed = (now_s - first) / period;
        let mut time_s = first.saturating_add((passed - 1).max(0) * period).max(second);
        time_s = match self.after(time_s - 1) {
            Some(next) if next <= now_s => next,
            _ => second,
        };
        while let Some(next) = self.after(time_s).filter(|next| *next <= now_s) {
            time_s = next;
        }
        Due::At {
            time_s,
            missed_many: passed + 1 > MISSED_MAX,
        }
    }

    /// A time as the Job's annotation shows it: in the zone that the CronJob names.
    pub(super) fn text(&self, time_s: i64) -> String {
        let Ok(time) = jiff::Timestamp::from_second(time_s) else {
            return String::new();
        };
        let offset = if self.is_zone_named {
            self.zone.to_offset(time)
        } else {
            Offset::UTC
        };
        let shown = offset.to_datetime(time).strftime("%Y-%m-%dT%H:%M:%S").to_string();
        match offset.seconds() / 60 {
            0 => shown + "Z",
            minutes => {
                let sign = if minutes < 0 { '-' } else { '+' };
                format!("{shown}{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
            }
        }
    }
}

/// `Mon, 30 Nov 2026 10:00:00 +0000`.
pub(super) fn long_text(time_s: i64) -> String {
    jiff::Timestamp::from_second(time_s).map_or_else(
        |_| String::new(),
        |time| time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    const CREATED: &str = "2026-11-30T10:00:30Z";

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn due(spec: Value, last: Option<&str>, now: &str) -> Due {
        let mut cron_job = json!({"metadata": {"creationTimestamp": CREATED}, "spec": spec, "status": {}});
        if let Some(last) = last {
            cron_job["status"]["lastScheduleTime"] = last.into();
        }
        let now = seconds(&now.into()).unwrap();
        Timetable::of(&cron_job).unwrap().due(&cron_job, now)
    }

    fn at(time: &str, missed_many: bool) -> Due {
        let time_s = seconds(&time.into()).unwrap();
        Due::At { time_s, missed_many }
    }

    #[test]
    fn the_newest_time_that_has_come_is_due_and_those_before_it_are_missed() {
        let every = || json!({"schedule": "*/5 * * * *"});
        assert_eq!(due(every(), None, "2026-11-30T10:04:59Z"), Due::Later);
        assert_eq!(
            due(every(), None, "2026-11-30T10:05:00Z"),
            at("2026-11-30T10:05:00Z", false)
        );
        assert_eq!(
            due(every(), None, "2026-11-30T10:24:00Z"),
            at("2026-11-30T10:20:00Z", false)
        );
        let last = Some("2026-11-30T10:20:00Z");
        assert_eq!(due(every(), last, "2026-11-30T10:24:00Z"), Due::Later);
        assert_eq!(
            due(every(), last, "2026-12-01T10:00:00Z"),
            at("2026-12-01T10:00:00Z", true)
        );
        // Uneven distances.
        let uneven = json!({"schedule": "0,1 * * * *"});
        assert_eq!(
            due(uneven, None, "2026-11-30T13:30:00Z"),
            at("2026-11-30T13:01:00Z", false)
        );
    }

    #[test]
    fn a_deadline_bounds_what_is_looked_back_at() {
        let spec = || json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 100});
        assert_eq!(due(spec(), None, "2026-11-30T13:30:00Z"), Due::Later);
        assert_eq!(
            due(spec(), None, "2026-11-30T13:01:00Z"),
            at("2026-11-30T13:00:00Z", false)
        );
    }

    #[test]
    fn times_are_shown_in_the_zone_that_is_named() {
        let text = |zone: Value| {
            let cron_job = json!({"spec": {"schedule": "0 * * * *", "timeZone": zone}});
            Timetable::of(&cron_job).unwrap().text(1_796_032_800)
        };
        assert_eq!(text(Value::Null), "2026-11-30T10:00:00Z");
        assert_eq!(text("Europe/Vienna".into()), "2026-11-30T11:00:00+01:00");
        assert_eq!(text("Etc/UTC".into()), "2026-11-30T10:00:00Z");
    }
}
