//! Pictures of `api_load`.

use std::collections::BTreeMap;

use plotters::prelude::{Circle, IntoLogRange as _, LineSeries, PathElement, RGBColor, Rectangle};
use plotters::style::Color as _;

use super::chart::{self, BLUE, GREEN, ORANGE, PALETTE, RED, TEXT};
use super::input::{self, Failure, Row};
use super::page::{Page, Table};

/// Pixels of a row of a picture.
const ROW_PIXELS: u32 = 28;
/// Pixels beside the rows: their labels.
const LABEL_PIXELS: u32 = 300;
/// Width of a histogram's bucket: [`Row::histogram`].
const BUCKET_FACTOR: f64 = 1.189_207;

pub(crate) fn sections(page: &mut Page, rows: &[Row]) -> Result<(), Failure> {
    ratios(page, rows)?;
    let mut transports: Vec<&str> = rows.iter().map(|row| row.transport.as_str()).collect();
    transports.sort_unstable();
    transports.dedup();
    for transport in transports {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.transport == transport).collect();
        latencies(page, transport, &rows)?;
    }
    costs(page, rows)
}

fn transport_colour(transport: &str) -> RGBColor {
    if transport == "plain" { BLUE } else { ORANGE }
}

/// How much of the CPU of a request is transport alone.
fn ratios(page: &mut Page, rows: &[Row]) -> Result<(), Failure> {
    let mut scenarios: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|row| row.cpu_share.is_some()) {
        let label = row.full_label();
        match scenarios.iter_mut().find(|(known, _)| *known == label) {
            Some((_, rows)) => rows.push(row),
            None => scenarios.push((label, vec![row])),
        }
    }
    if scenarios.is_empty() {
        return Ok(());
    }
    let most = scenarios
        .iter()
        .flat_map(|(_, rows)| rows.iter().filter_map(|row| row.cpu_share))
        .fold(1.1, f64::max)
        .min(2.0);
    let height = scenarios.len() as u32 * ROW_PIXELS + 70;
    let svg = chart::draw(height, |area| {
        let rows = scenarios.len() as f64;
        let mut chart = chart::builder(area, LABEL_PIXELS).build_cartesian_2d(0.0..most, 0.0..rows)?;
        chart::rows_mesh(&mut chart, "CPU of the limit / CPU of flatkube", 12, &|share| {
            format!("{share:.1}")
        })?;
        for (at, (label, rows_of)) in scenarios.iter().enumerate() {
            let top = rows - at as f64;
            chart::row_name(area, &chart, label, 0.0, top - 0.5)?;
            let each = 0.72 / rows_of.len() as f64;
            for (index, row) in rows_of.iter().enumerate() {
                let share = row.cpu_share.unwrap_or_default();
                let high = top - 0.14 - each * index as f64;
                let shown = share.min(most);
                chart.draw_series([Rectangle::new(
                    [(0.0, high), (shown, high - each * 0.92)],
                    transport_colour(&row.transport).mix(0.85).filled(),
                )])?;
            }
        }
        chart.draw_series([PathElement::new(vec![(1.0, 0.0), (1.0, rows)], RED.stroke_width(2))])?;
        Ok(())
    })?;
    let mut table = Table::new(&[
        "scenario",
        "transport",
        "body",
        "CPU / op",
        "limit's CPU / op",
        "limit / ours, CPU",
        "ours / limit, rate",
        "rate, 1/s",
        "allocations / op",
    ]);
    for (label, rows) in &scenarios {
        for row in rows {
            table.row(vec![
                label.clone(),
                row.transport.clone(),
                input::size(row.bytes as f64),
                optional(row.cpu_us, input::duration),
                optional(row.limit.as_ref().and_then(|limit| limit.cpu_us), input::duration),
                optional(row.cpu_share, |share| format!("{share:.2}")),
                optional(row.rate_share, |share| format!("{share:.2}")),
                format!("{:.0}", row.rate),
                optional(row.allocations, |count| format!("{count:.1}")),
            ]);
        }
    }
    page.section(
        "Ratio to the limit",
        "The limit is a bare hyper server in the same process that answers a constant body of the same size over the same \
         transport, measured by turns with flatkube. At 1 (the red line) a request costs nothing but its transport; at 0.5 twice as much.",
        &[
            (&chart::css(BLUE), "HTTP/1.1 in the clear".into()),
            (&chart::css(ORANGE), "HTTP/2 over TLS".into()),
            (&chart::css(RED), "the limit".into()),
        ],
        &svg,
        &table,
    );
    Ok(())
}

/// How long requests took, a row a scenario.
fn latencies(page: &mut Page, transport: &str, rows: &[&Row]) -> Result<(), Failure> {
    let bounds = rows.iter().flat_map(|row| {
        row.histogram
            .iter()
            .flat_map(|(upper, _)| [upper / BUCKET_FACTOR, *upper])
            .chain([row.latency.p50_us, row.latency.p99_us])
    });
    let (least, most) = bounds.fold((f64::MAX, 1.0), |(least, most): (f64, f64), at| {
        (least.min(at), most.max(at))
    });
    if least >= most {
        return Ok(());
    }
    let range = chart::log_range(least.max(1.0) * 0.9..most * 1.1);
    let left = least.max(1.0) * 0.9;
    let height = rows.len() as u32 * ROW_PIXELS + 70;
    let colour = transport_colour(transport);
    let svg = chart::draw(height, |area| {
        let count = rows.len() as f64;
        let mut chart = chart::builder(area, LABEL_PIXELS).build_cartesian_2d(range, 0.0..count)?;
        chart::rows_mesh(&mut chart, "time of a request", 16, &|us| input::duration(*us))?;
        for (at, row) in rows.iter().enumerate() {
            let base = count - at as f64 - 0.9;
            chart::row_name(area, &chart, &row.full_label(), left, base + 0.38)?;
            let highest = row.histogram.iter().map(|(_, count)| *count).max().unwrap_or(1) as f64;
            chart.draw_series(row.histogram.iter().map(|(upper, count)| {
                let high = 0.8 * *count as f64 / highest;
                Rectangle::new(
                    [(upper / BUCKET_FACTOR, base), (*upper, base + high)],
                    colour.mix(0.55).filled(),
                )
            }))?;
            chart.draw_series([PathElement::new(
                vec![(left, base), (most * 1.1, base)],
                TEXT.mix(0.2).stroke_width(1),
            )])?;
            let mark = |at: f64, high: f64, colour: RGBColor| {
                PathElement::new(vec![(at, base), (at, base + high)], colour.stroke_width(2))
            };
            chart.draw_series([mark(row.latency.p50_us, 0.85, TEXT), mark(row.latency.p99_us, 0.5, RED)])?;
            if let Some(limit) = &row.limit {
                chart.draw_series([Circle::new((limit.latency.p50_us, base), 4, GREEN.filled())])?;
            }
        }
        Ok(())
    })?;
    let mut table = Table::new(&[
        "scenario",
        "body",
        "rate, 1/s",
        "p50",
        "p90",
        "p99",
        "limit's p50",
        "limit's p99",
    ]);
    for row in rows {
        table.row(vec![
            row.full_label(),
            input::size(row.bytes as f64),
            format!("{:.0}", row.rate),
            input::duration(row.latency.p50_us),
            input::duration(row.latency.p90_us),
            input::duration(row.latency.p99_us),
            optional(row.limit.as_ref().map(|limit| limit.latency.p50_us), input::duration),
            optional(row.limit.as_ref().map(|limit| limit.latency.p99_us), input::duration),
        ]);
    }
    page.section(
        &format!("Latency distributions, {transport}"),
        "Each row is the histogram of one scenario's requests over a logarithmic axis, drawn to its own height.",
        &[
            (&chart::css(colour), "how many requests took so long".into()),
            ("currentColor", "half took less (p50)".into()),
            (&chart::css(RED), "99 of 100 took less (p99)".into()),
            (&chart::css(GREEN), "the limit's p50".into()),
        ],
        &svg,
        &table,
    );
    Ok(())
}

/// CPU of the same request in stores of different sizes.
fn costs(page: &mut Page, rows: &[Row]) -> Result<(), Failure> {
    let mut lines: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for row in rows {
        if let Some(cpu) = row.cpu_us.filter(|cpu| *cpu > 0.0 && row.objects > 0) {
            let label = format!("{}, {}", row.label(), row.transport);
            lines.entry(label).or_default().insert(row.objects, cpu);
        }
    }
    lines.retain(|_, points| points.len() > 1);
    if lines.is_empty() {
        return Ok(());
    }
    let all = || lines.values().flatten();
    let (fewest, most) = all().fold((u64::MAX, 1), |(low, high), (objects, _)| {
        (low.min(*objects), high.max(*objects))
    });
    let (least, dearest) = all().fold((f64::MAX, 0.0), |(low, high): (f64, f64), (_, cpu)| {
        (low.min(*cpu), high.max(*cpu))
    });
    let svg = chart::draw(520, |area| {
        let x = (fewest as f64 * 0.9..most as f64 * 1.1).log_scale();
        let y = chart::log_range(least * 0.7..dearest * 1.4);
        let mut chart = chart::builder(area, 86).build_cartesian_2d(x, y)?;
        chart::full_mesh(
            &mut chart,
            ("objects in the store", "CPU of a request"),
            (&|objects| input::count(*objects as u64), &|us| input::duration(*us)),
        )?;
        for (points, colour) in lines.values().zip(PALETTE.iter().cycle()) {
            let points: Vec<(f64, f64)> = points.iter().map(|(objects, cpu)| (*objects as f64, *cpu)).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
        }
        Ok(())
    })?;
    let mut table = Table::new(&["scenario", "objects", "CPU / op", "to the smallest store"]);
    for (label, points) in &lines {
        let first = points.values().next().copied().unwrap_or(1.0);
        for (objects, cpu) in points {
            table.row(vec![
                label.clone(),
                input::count(*objects),
                input::duration(*cpu),
                format!("{:.2}", cpu / first),
            ]);
        }
    }
    let colours: Vec<String> = PALETTE.iter().map(|colour| chart::css(*colour)).collect();
    let keys: Vec<(&str, String)> = colours
        .iter()
        .cycle()
        .map(String::as_str)
        .zip(lines.keys().cloned())
        .collect();
    page.section(
        "Cost against the number of objects",
        "Both axes are logarithmic. What answers the same bytes should cost the same whatever the store holds: a flat line; what answers \
         the whole store rises with it.",
        &keys,
        &svg,
        &table,
    );
    Ok(())
}

fn optional(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".into(), text)
}
