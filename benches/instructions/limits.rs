//! The limits, and what is said about counts that are held against them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Per cent that a new scenario may take more or fewer.
const TOLERANCE_PERCENT: f64 = 3.0;

const HEAD: &str = "\
# Instructions of one round of each scenario of benches/instructions, and by how many per cent they may grow.
# Written by: cargo bench --profile ci --bench instructions -- --save
";

/// `bench/instruction-limits.tsv`: scenario, instructions, tolerance in per cent.
pub(crate) struct Limits {
    rows: BTreeMap<String, (u64, f64)>,
}

impl Limits {
    fn path() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bench/instruction-limits.tsv")
    }

    /// The file of limits; empty when there is none yet.
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(Self::path()).unwrap_or_default();
        let rows = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| {
                let columns: Vec<&str> = line.split('\t').collect();
                let row = match columns[..] {
                    [name, count, tolerance] => count.parse().ok().zip(tolerance.parse().ok()).map(|row| (name, row)),
                    _ => None,
                };
                let (name, row) = row.unwrap_or_else(|| panic!("{}: {line:?} is no limit", Self::path().display()));
                (name.to_owned(), row)
            })
            .collect();
        Self { rows }
    }

    fn write(&self) {
        let mut text = HEAD.to_owned();
        for (name, (count, tolerance)) in &self.rows {
            let _ = writeln!(text, "{name}\t{count}\t{tolerance}");
        }
        std::fs::write(Self::path(), text).expect("the file of limits");
    }
}

/// The counts of now beside their limits.
pub(crate) struct Table {
    limits: BTreeMap<String, (u64, f64)>,
    counts: BTreeMap<String, u64>,
    /// Whether every scenario is counted, so that a limit without one is left over.
    all: bool,
    above: Vec<String>,
    below: Vec<String>,
    unknown: Vec<String>,
}

impl Table {
    pub(crate) fn new(limits: &Limits, all: bool) -> Self {
        println!("| scenario | instructions | limit | change | |");
        println!("| --- | --: | --: | --: | --- |");
        Self {
            limits: limits.rows.clone(),
            counts: BTreeMap::new(),
            all,
            above: Vec::new(),
            below: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// A scenario, counted once or more often; the smallest count is taken.
    pub(crate) fn row(&mut self, name: &str, counts: &[u64]) {
        let (least, most) = (
            counts.iter().copied().min().unwrap_or(0),
            counts.iter().copied().max().unwrap_or(0),
        );
        self.counts.insert(name.to_owned(), least);
        let spread = if counts.len() > 1 {
            format!("spread {:.2} %", percent(most, least))
        } else {
            String::new()
        };
        let Some(&(limit, tolerance)) = self.limits.get(name) else {
            println!("| {name} | {} | - | - | no limit {spread} |", grouped(least));
            self.unknown.push(name.to_owned());
            return;
        };
        let change = percent(least, limit);
        let verdict = if change > tolerance {
            self.above.push(name.to_owned());
            "**above the limit**"
        } else if change < -tolerance {
            self.below.push(name.to_owned());
            "below"
        } else {
            ""
        };
        println!(
            "| {name} | {} | {} | {change:+.1} % | {verdict} {spread} |",
            grouped(least),
            grouped(limit)
        );
    }

    /// The counts become the limits; tolerances stay.
    pub(crate) fn save(&self, mut limits: Limits) {
        if self.all {
            limits.rows.retain(|name, _| self.counts.contains_key(name));
        }
        for (name, count) in &self.counts {
            let tolerance = limits
                .rows
                .get(name)
                .map_or(TOLERANCE_PERCENT, |(_, tolerance)| *tolerance);
            limits.rows.insert(name.clone(), (*count, tolerance));
        }
        limits.write();
        println!("\nsaved to {}", Limits::path().display());
    }

    /// What follows from the counts.
    pub(crate) fn verdict(self) -> ExitCode {
        let left_over = self
            .limits
            .keys()
            .filter(|name| self.all && !self.counts.contains_key(*name))
            .cloned()
            .collect::<Vec<_>>();
        let told = [
            (
                &self.above,
                "take more instructions than their limit allows: make them cheaper, or say in the commit why they cost more and save new limits (--save)",
            ),
            (
                &self.below,
                "take fewer: lower the limits (--save), so that the gain is kept",
            ),
            (&self.unknown, "have no limit: save one (--save)"),
            (&left_over, "have a limit and are not there: save (--save)"),
        ];
        for (names, what) in told {
            if !names.is_empty() {
                println!("\n{} {what}", names.join(", "));
            }
        }
        if self.above.is_empty() && self.unknown.is_empty() && left_over.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn percent(count: u64, limit: u64) -> f64 {
    (count as f64 / limit.max(1) as f64 - 1.0) * 100.0
}

/// `1234567` as `1,234,567`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}
