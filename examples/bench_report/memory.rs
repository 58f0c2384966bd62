//! Pictures of `measure-baseline.sh`.

use plotters::prelude::{AreaSeries, LineSeries, PathElement, RGBColor, Rectangle};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, VPos};

use super::chart::{self, BLUE, GREEN, ORANGE, PALETTE, PURPLE, RED, TEXT};
use super::input::{self, ClientLoad, Failure, Memory, Phase, Sample};
use super::page::{Page, Table};

const MIB: f64 = 1_048_576.0;
/// The colour by which [`turned`] knows the names of phases.
const SLANTED: RGBColor = RGBColor(0x01, 0x02, 0x04);

/// A curve: its colour, what it is called, and where its bytes stand in a sample.
type Kind = (RGBColor, &'static str, fn(&Sample) -> Option<f64>);

/// Of the process, or, where that ended meanwhile, what the cgroup holds.
fn private(sample: &Sample) -> Option<f64> {
    sample.2.or(sample.5)
}

pub(crate) fn sections(page: &mut Page, memory: &Memory) -> Result<(), Failure> {
    let table = phases(&memory.phases);
    if memory.samples.rows.len() > 1 {
        let limit = (memory.limit.kind != "no cgroup").then_some(memory.limit.memory_bytes as f64);
        let kinds: [Kind; 4] = [
            (BLUE, "charge of the cgroup", |sample| sample.4),
            (
                GREEN,
                "of it file pages (page cache; given up when room is needed)",
                |sample| sample.6,
            ),
            (PURPLE, "files mapped by the process (RssFile)", |sample| sample.3),
            (ORANGE, "private anonymous memory", private),
        ];
        let svg = over_time(&memory.samples.rows, &kinds, limit)?;
        let mut keys = names(&kinds);
        if limit.is_some() {
            keys.push((chart::css(RED), "the limit".into()));
        }
        page.section(
            "Memory by kind over time",
            &format!(
                "{} Pods in a {} with {} and {} CPU, sampled every 100 ms. The charge may touch the limit: file pages make way.",
                input::count(memory.objects),
                memory.limit.kind,
                input::size(memory.limit.memory_bytes as f64),
                memory.limit.cpus
            ),
            &borrowed(&keys),
            &svg,
            &table,
        );
        let kinds: [Kind; 1] = [(ORANGE, "private anonymous memory", private)];
        page.section(
            "Private anonymous memory alone",
            "The same run, on its own scale: what the server needs and cannot read back from a file. It has to come back to the same height \
             after each cycle.",
            &borrowed(&names(&kinds)),
            &over_time(&memory.samples.rows, &kinds, None)?,
            &allocator(&memory.phases),
        );
    }
    if let Some(load) = memory.loads.first() {
        client_load(page, load)?;
    }
    Ok(())
}

fn names(kinds: &[Kind]) -> Vec<(String, String)> {
    kinds
        .iter()
        .map(|(colour, name, _)| (chart::css(*colour), (*name).to_owned()))
        .collect()
}

fn borrowed(keys: &[(String, String)]) -> Vec<(&str, String)> {
    keys.iter()
        .map(|(colour, name)| (colour.as_str(), name.clone()))
        .collect()
}

/// Curves over bands that tell the phases apart.
fn over_time(samples: &[Sample], kinds: &[Kind], limit: Option<f64>) -> Result<String, Failure> {
    let end = samples.last().map_or(1.0, |sample| sample.0 as f64 / 1e3);
    let most = kinds
        .iter()
        .flat_map(|(_, _, bytes)| samples.iter().filter_map(bytes))
        .chain(limit)
        .fold(1.0, f64::max)
        / MIB
        * 1.08;
    chart::draw(440, |area| {
        let mut chart = chart::builder(area, 70)
            .margin_top(98)
            .margin_right(96)
            .build_cartesian_2d(0.0..end, 0.0..most)?;
        for (at, (from, to, name)) in bands(samples).into_iter().enumerate() {
            if at % 2 == 0 {
                chart.draw_series([Rectangle::new([(from, 0.0), (to, most)], TEXT.mix(0.05).filled())])?;
            }
            let (x, y) = chart.backend_coord(&(f64::midpoint(from, to), most));
            area.draw_text(
                &name,
                &chart::text_at(15, HPos::Left, VPos::Bottom).color(&SLANTED),
                (x - 2, y - 6),
            )?;
        }
        chart::full_mesh(
            &mut chart,
            ("seconds", "MiB"),
            (&|seconds| format!("{seconds:.0}"), &|mib| format!("{mib:.0}")),
        )?;
        for (colour, _, bytes) in kinds {
            let points: Vec<(f64, f64)> = samples
                .iter()
                .filter_map(|sample| Some((sample.0 as f64 / 1e3, bytes(sample)? / MIB)))
                .collect();
            if *colour == ORANGE {
                chart.draw_series(AreaSeries::new(points.iter().copied(), 0.0, colour.mix(0.2)))?;
            }
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        if let Some(limit) = limit {
            chart.draw_series([PathElement::new(
                vec![(0.0, limit / MIB), (end, limit / MIB)],
                RED.stroke_width(2),
            )])?;
        }
        Ok(())
    })
    .map(|svg| turned(&svg))
}

/// Turns the names of phases about where they begin, so that short phases do not write over each other; plotters knows
/// right angles alone. They are found by their colour.
fn turned(svg: &str) -> String {
    let colour = chart::css(SLANTED);
    let mut text = String::with_capacity(svg.len());
    for line in svg.lines() {
        let coordinate = |name: &str| {
            let rest = &line[line.find(&format!(" {name}=\""))? + name.len() + 3..];
            Some(&rest[..rest.find('"')?])
        };
        match (line.contains(&colour), coordinate("x"), coordinate("y")) {
            (true, Some(x), Some(y)) => {
                let turned = format!("<text transform=\"rotate(-35 {x} {y})\"");
                text.push_str(&line.replacen("<text", &turned, 1).replace(&colour, "currentColor"));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Where each phase begins and ends, in seconds.
fn bands(samples: &[Sample]) -> Vec<(f64, f64, String)> {
    let mut bands: Vec<(f64, f64, String)> = Vec::new();
    for sample in samples {
        let at = sample.0 as f64 / 1e3;
        match bands.last_mut() {
            Some((_, to, name)) if *name == sample.1 => *to = at,
            last => {
                if let Some((_, to, _)) = last {
                    *to = at;
                }
                bands.push((at, at, sample.1.clone()));
            }
        }
    }
    bands.retain(|(from, to, name)| to > from && name != "-");
    bands
}

fn mib(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| "–".into(), |bytes| format!("{:.1}", bytes / MIB))
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "–".into(), |value| value.to_string())
}

fn phases(phases: &[Phase]) -> Table {
    let mut table = Table::new(&[
        "phase",
        "charge, MiB",
        "file pages, MiB",
        "kernel, MiB",
        "private anonymous, MiB",
        "RSS, MiB",
        "PSS, MiB",
        "major faults",
        "CPU since start, ms",
    ]);
    for phase in phases {
        table.row(vec![
            phase.name.clone(),
            mib(phase.charge),
            mib(phase.file),
            mib(phase.kernel),
            mib(phase.private),
            mib(phase.rss),
            mib(phase.pss),
            number(phase.major_faults),
            number(phase.cpu_ms),
        ]);
    }
    table
}

fn allocator(phases: &[Phase]) -> Table {
    let mut table = Table::new(&[
        "phase",
        "private anonymous, MiB",
        "allocator: live, MiB",
        "allocator: retained, MiB",
    ]);
    for phase in phases {
        table.row(vec![
            phase.name.clone(),
            mib(phase.private),
            mib(phase.live),
            mib(phase.retained),
        ]);
    }
    table
}

/// How long the requests of the runbook's client took, under the limits of the cgroup.
fn client_load(page: &mut Page, load: &ClientLoad) -> Result<(), Failure> {
    let times = || load.kinds.iter().flat_map(|kind| kind.percentiles_us.iter().copied());
    let (least, most) = (times().fold(f64::MAX, f64::min).max(1.0), times().fold(1.0, f64::max));
    if least >= most {
        return Ok(());
    }
    let svg = chart::draw(400, |area| {
        let mut chart =
            chart::builder(area, 86).build_cartesian_2d(0.0..100.0, chart::log_range(least * 0.8..most * 1.25))?;
        chart::full_mesh(
            &mut chart,
            ("of 100 requests, so many took", "at most"),
            (&|percent| format!("{percent:.0}"), &|us| input::duration(*us)),
        )?;
        for (kind, colour) in load.kinds.iter().zip(PALETTE.iter().cycle()) {
            let points = kind
                .percentiles_us
                .iter()
                .enumerate()
                .map(|(percent, us)| (percent as f64, us.max(least)));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        Ok(())
    })?;
    let mut table = Table::new(&["request", "requests", "p50", "p90", "p99", "slowest"]);
    for kind in &load.kinds {
        table.row(vec![
            kind.kind.clone(),
            kind.requests.to_string(),
            input::duration(kind.p50_us),
            input::duration(kind.p90_us),
            input::duration(kind.p99_us),
            input::duration(kind.max_us),
        ]);
    }
    let colours: Vec<String> = PALETTE.iter().map(|colour| chart::css(*colour)).collect();
    let keys: Vec<(&str, String)> = colours
        .iter()
        .cycle()
        .map(String::as_str)
        .zip(load.kinds.iter().map(|kind| kind.kind.clone()))
        .collect();
    page.section(
        "Latency within the limits",
        &format!(
            "The first load of the runbook: {} clients, {} requests in {:.1} s, HTTP/2 over TLS.",
            load.clients, load.requests, load.seconds
        ),
        &keys,
        &svg,
        &table,
    );
    Ok(())
}
