//! `/healthz`, `/livez`, `/readyz`: in one word, check by check with `?verbose`, without some with `?exclude=`.

use std::fmt::Write as _;

use http::StatusCode;

use super::Api;
use super::body::Response;
use super::path::Health;
use super::request::Query;
use super::router::{not_found, plain};
use crate::store::MENDED_BY;

/// A check: its name, and whether it passes now.
type Check = (&'static str, fn(&Api) -> bool);

const ALIVE: &[Check] = &[("ping", |_| true), ("log", |_| true), ("store", Api::store_is_open)];
const READY: &[Check] = &[
    ("ping", |_| true),
    ("log", |_| true),
    ("store", Api::store_is_open),
    ("shutdown", |api| !api.reader.stopping.is_stopping()),
];

/// Answers one of the three endpoints, or one check below it.
pub(super) fn answer(api: &Api, which: Health, check: Option<&str>, query: &str) -> Response {
    let (name, checks) = match which {
        Health::Healthz => ("healthz", ALIVE),
        Health::Livez => ("livez", ALIVE),
        Health::Readyz => ("readyz", READY),
    };
    if let Some(check) = check {
        return match checks.iter().find(|(name, _)| *name == check) {
            None => not_found(),
            Some((_, passes)) if passes(api) => plain(StatusCode::OK, "ok".into()),
            Some((check, _)) => failed(format!("internal server error: {check} check failed\n")),
        };
    }
    let query = Query::new(query);
    let excluded: Vec<_> = query.all("exclude").collect();
    let mut report = String::new();
    let mut passed = true;
    for (check, passes) in checks {
        if excluded.iter().any(|name| name == check) {
            let _ = writeln!(report, "[+]{check} excluded: ok");
        } else if passes(api) {
            let _ = writeln!(report, "[+]{check} ok");
        } else {
            passed = false;
            let _ = writeln!(report, "[-]{check} failed: reason withheld");
        }
    }
    if !passed {
        let _ = writeln!(report, "{name} check failed");
        return failed(report);
    }
    if query.get("verbose").is_none() {
        return plain(StatusCode::OK, "ok".into());
    }
    for unknown in excluded
        .iter()
        .filter(|excluded| !checks.iter().any(|(check, _)| excluded == check))
    {
        let _ = writeln!(
            report,
            "warn: some health checks cannot be excluded: no matches for {unknown:?}"
        );
    }
    // Who can read one object less is ready all the same; but it is not to be overlooked.
    let damaged = api.reader.store.stats().damaged.len();
    if damaged > 0 {
        let _ = writeln!(
            report,
            "[!]integrity {damaged} damaged places that cannot be mended while it runs: {MENDED_BY}"
        );
    }
    let _ = writeln!(report, "{name} check passed");
    plain(StatusCode::OK, report.into_bytes().into())
}

fn failed(report: String) -> Response {
    plain(StatusCode::INTERNAL_SERVER_ERROR, report.into_bytes().into())
}
