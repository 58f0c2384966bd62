//! Two builds of this program by turns: the other one (*base*) and this one, each in a process of its own, take a round of
//! the same scenario one after the other, again and again. Whatever else the machine does meets both alike, a tenth of a
//! second apart. A figure counts as worse when the median over the rounds of the ratio of each pair and the ratio of the
//! better quartiles are both beyond the margin, and four of five pairs show at least half of it. Where others use much of
//! the machine, CPU/op alone is judged: times are theirs then.
//!
//! The two halves talk in lines. The driver writes `open KEY`, `round`, `close` to a half's stdin; the half answers each
//! with a line of JSON.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::compare::Margins;
use crate::measure::median;
use crate::report::{Latency, per_second, time};
use crate::scenario::{Batch, Running, Scenario};
use crate::stage::Stage;

/// The other build cannot take part.
const OLDER: u8 = 4;
/// Rounds of each half for one run of `--runs`.
const ROUNDS_PER_RUN: usize = 7;

/// The first line of a half.
#[derive(Serialize, Deserialize)]
struct Offer {
    keys: Vec<String>,
}

/// A half's answer to a command.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply<T> {
    Done(T),
    Failed(String),
}

/// What a round came to.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Taken {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    allocations: f64,
    allocated_bytes: f64,
}

impl Taken {
    fn of(batch: &Batch) -> Self {
        let latency = Latency::of(batch.took.iter().copied());
        Self {
            rate: batch.rate(),
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            cpu_us: batch.cpu_us(),
            allocations: batch.allocations(),
            allocated_bytes: batch.allocated_bytes(),
        }
    }
}

/// One half: does what it is told on stdin until that ends.
pub(crate) fn paced(scenarios: &[Scenario], stage: &mut Stage) -> ExitCode {
    let keys = scenarios.iter().map(|scenario| scenario.key.to_string()).collect();
    say(&Offer { keys });
    let mut running: Option<Box<dyn Running>> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.split_once(' ').unwrap_or((line.as_str(), "")) {
            ("open", key) => {
                let scenario = scenarios.iter().find(|scenario| scenario.key.to_string() == key);
                let opened = scenario.map(|scenario| (scenario.open)(stage));
                say(&match opened {
                    Some(Ok(opened)) => {
                        running = Some(opened);
                        Reply::Done(())
                    }
                    Some(Err(failure)) => Reply::Failed(failure.to_string()),
                    None => Reply::Failed(format!("no scenario {key}")),
                });
            }
            ("round", _) => say(&match running.as_mut().map(|running| running.ours()) {
                Some(Ok(round)) => Reply::Done(Taken::of(&round.whole)),
                Some(Err(failure)) => Reply::Failed(failure.to_string()),
                None => Reply::Failed("nothing is open".to_owned()),
            }),
            ("close", _) => {
                running = None;
                say(&Reply::Done(()));
            }
            _ => say(&Reply::<()>::Failed(format!("no such command: {line}"))),
        }
    }
    ExitCode::SUCCESS
}

fn say(line: &impl Serialize) {
    let mut text = serde_json::to_string(line).expect("figures");
    text.push('\n');
    let mut out = std::io::stdout().lock();
    // When the driver is gone, stdin ends too.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Drives both halves; tells what became slower, and measures that again before it counts.
pub(crate) fn against(base: &Path, scenarios: &[Scenario], arguments: &Arguments) -> ExitCode {
    match drive(base, scenarios, arguments) {
        Ok(code) => code,
        Err(Trouble::Older(why)) => {
            eprintln!("!!! {} cannot be compared with: {why}", base.display());
            ExitCode::from(OLDER)
        }
        Err(Trouble::Failed(why)) => {
            eprintln!("FAILED {why}");
            ExitCode::from(crate::WORSE)
        }
    }
}

enum Trouble {
    /// The other build does not speak these lines.
    Older(String),
    Failed(String),
}

fn drive(base: &Path, scenarios: &[Scenario], arguments: &Arguments) -> Result<ExitCode, Trouble> {
    let keys: Vec<_> = scenarios.iter().map(|scenario| scenario.key.to_string()).collect();
    let margins = arguments.margins();
    let first = measure(base, &keys, arguments)?;
    println!("{}", table(&first, margins));
    let disturbed = first.iter().filter(|met| met.is_disturbed()).count();
    if disturbed > 0 {
        let note = format!(
            "In {disturbed} of {} scenarios others used more than {:.0}% of the CPUs: there CPU/op alone is judged.",
            first.len(),
            OTHERS_MAX * 100.0
        );
        println!("{note}\n");
        eprintln!("!!! {note}");
    }
    let suspects: Vec<_> = first
        .iter()
        .filter(|met| !met.worse(margins).is_empty())
        .map(|met| met.key.clone())
        .collect();
    if suspects.is_empty() {
        eprintln!("{} scenarios compared, none worse than its margin", first.len());
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("measured again, because they seem slower: {}", suspects.join(", "));
    let second = measure(base, &suspects, arguments)?;
    println!("Measured again:\n\n{}", table(&second, margins));
    let mut confirmed = Vec::new();
    for again in &second {
        let before = first.iter().find(|met| met.key == again.key);
        let before = before.map(|met| met.worse(margins)).unwrap_or_default();
        for figure in again.worse(margins) {
            if before.contains(&figure) {
                confirmed.push(format!("{}: {figure}", again.key));
            }
        }
    }
    if confirmed.is_empty() {
        eprintln!("none was worse both times");
        return Ok(ExitCode::SUCCESS);
    }
    println!("Worse both times:\n\n- {}\n", confirmed.join("\n- "));
    eprintln!("worse than the margin, both times:\n  {}", confirmed.join("\n  "));
    Ok(ExitCode::from(crate::WORSE))
}

/// Both halves of one scenario, round by round.
struct Met {
    key: String,
    /// Base and this build.
    rounds: Vec<[Taken; 2]>,
    /// The share of the machine's CPUs that neither build used and that was not idle.
    others: f64,
}

/// Figures that are judged, with how each becomes worse, and whether it means something while others use the machine.
type Judged = (&'static str, fn(&Taken) -> f64, fn(&Margins) -> f64, bool);

/// The share of the CPUs above which others make times meaningless. CPU/op is then judged alone.
const OTHERS_MAX: f64 = 0.2;

/// The rate is judged as time an operation, so that a quarter more work is a quarter worse in it as in the others.
const JUDGED: [Judged; 3] = [
    ("ops/s", |taken| 1.0 / taken.rate, |margins| margins.rate, false),
    ("CPU/op", |taken| taken.cpu_us, |margins| margins.rate, true),
    ("p99", |taken| taken.p99_us, |margins| margins.p99, false),
];

impl Met {
    /// The median over the rounds of this build's figure divided by base's.
    fn ratio(&self, figure: fn(&Taken) -> f64) -> f64 {
        median(self.rounds.iter().map(|[base, this]| figure(this) / figure(base)))
    }

    /// The better quartile of this build's rounds divided by that of base's: what both reach when nobody disturbs them.
    fn undisturbed_ratio(&self, figure: fn(&Taken) -> f64) -> f64 {
        let quartile = |side: usize| {
            let mut figures: Vec<f64> = self.rounds.iter().map(|round| figure(&round[side])).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 4).copied().unwrap_or(f64::NAN)
        };
        quartile(1) / quartile(0)
    }

    fn middle(&self, side: usize, figure: fn(&Taken) -> f64) -> f64 {
        median(self.rounds.iter().map(|round| figure(&round[side])))
    }

    fn is_disturbed(&self) -> bool {
        self.others > OTHERS_MAX
    }

    /// Whether at least four of five pairs show at least half of the margin.
    fn is_steady(&self, figure: fn(&Taken) -> f64, margin: f64) -> bool {
        let shows = |[base, this]: &&[Taken; 2]| figure(this) / figure(base) - 1.0 > margin / 2.0;
        self.rounds.iter().filter(shows).count() * 5 >= self.rounds.len() * 4
    }

    /// Names of the figures that are worse than their margin, whichever way they are looked at: in the middle of the pairs,
    /// undisturbed, and in nearly all pairs. What is truly slower is so in all three; what others on the machine did
    /// almost never is.
    fn worse(&self, margins: Margins) -> Vec<&'static str> {
        JUDGED
            .iter()
            .filter(|(_, figure, margin, always)| {
                let margin = margin(&margins);
                (*always || !self.is_disturbed())
                    && self.ratio(*figure).min(self.undisturbed_ratio(*figure)) - 1.0 > margin
                    && self.is_steady(*figure, margin)
            })
            .map(|(name, _, _, _)| *name)
            .collect()
    }
}

fn measure(base: &Path, keys: &[String], arguments: &Arguments) -> Result<Vec<Met>, Trouble> {
    let this = std::env::current_exe().map_err(|error| Trouble::Failed(error.to_string()))?;
    let mut base = Half::start(base, arguments)?;
    let mut this = Half::start(&this, arguments)?;
    let keys: Vec<_> = keys.iter().filter(|key| base.keys.contains(key)).collect();
    let mut all = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        eprintln!("[{}/{}] {key}", index + 1, keys.len());
        let ids = [std::process::id(), base.child.id(), this.child.id()];
        let machine = Machine::now(&ids);
        let mut rounds = Vec::new();
        // Each run has connections of its own, so that how they fell to threads is not taken for a difference of builds.
        for _ in 0..arguments.runs.max(1) {
            for half in [&mut base, &mut this] {
                half.ask::<()>(&format!("open {key}"))?;
                half.ask::<Taken>("round")?;
            }
            for round in 0..ROUNDS_PER_RUN {
                // Who goes first changes, so that neither always runs in the other's caches.
                rounds.push(if round % 2 == 0 {
                    let first = base.ask("round")?;
                    [first, this.ask("round")?]
                } else {
                    let first = this.ask("round")?;
                    [base.ask("round")?, first]
                });
            }
            for half in [&mut base, &mut this] {
                half.ask::<()>("close")?;
            }
        }
        all.push(Met {
            key: (*key).clone(),
            rounds,
            others: machine.others_since(&Machine::now(&ids)),
        });
    }
    Ok(all)
}

/// A process that is driven.
struct Half {
    binary: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    keys: Vec<String>,
}

impl Half {
    fn start(binary: &Path, arguments: &Arguments) -> Result<Self, Trouble> {
        let mut command = Command::new(binary);
        command
            .arg("--paced")
            .args(["--objects", &arguments.objects.to_string()])
            .args(["--half-round-ms", &arguments.half_round_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let cannot = |error: &dyn std::fmt::Display| Trouble::Failed(format!("{}: {error}", binary.display()));
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(cannot(&"no pipes"));
        };
        let mut half = Self {
            binary: binary.to_owned(),
            child,
            input: Some(input),
            output: BufReader::new(output),
            keys: Vec::new(),
        };
        let offer: Offer = half.line().map_err(Trouble::Older)?;
        half.keys = offer.keys;
        Ok(half)
    }

    fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T, Trouble> {
        let failed = |binary: &Path, what: &str| Trouble::Failed(format!("{}: {command}: {what}", binary.display()));
        if let Some(input) = &mut self.input {
            writeln!(input, "{command}")
                .and_then(|()| input.flush())
                .map_err(|error| failed(&self.binary, &error.to_string()))?;
        }
        match self.line() {
            Ok(Reply::Done(done)) => Ok(done),
            Ok(Reply::Failed(what)) | Err(what) => Err(failed(&self.binary, &what)),
        }
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|error| format!("answered {line:?}: {error}"))
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // Its stdin ends, so it ends, and removes its directories.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// CPU time since the machine started, in clock ticks.
struct Machine {
    all: u64,
    idle: u64,
    ours: u64,
}

impl Machine {
    /// `ids`: our processes.
    fn now(ids: &[u32]) -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let numbers = |text: &str| -> Vec<u64> { text.split_whitespace().flat_map(str::parse).collect() };
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two (proc(5)).
        let times = numbers(stat.lines().next().unwrap_or_default());
        let times = &times[..times.len().min(8)];
        let of_process = |id: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            // The name may hold spaces; behind it, user and system time are fields 14 and 15.
            let fields = stat.rsplit(')').next().unwrap_or_default();
            let fields: Vec<_> = fields.split_whitespace().skip(11).take(2).collect();
            fields.iter().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
        };
        Self {
            all: times.iter().sum(),
            idle: times.iter().skip(3).take(2).sum(),
            ours: ids.iter().map(of_process).sum(),
        }
    }

    fn others_since(&self, end: &Self) -> f64 {
        let all = end.all.saturating_sub(self.all);
        let known = end.idle.saturating_sub(self.idle) + end.ours.saturating_sub(self.ours);
        if all == 0 {
            return 0.0;
        }
        all.saturating_sub(known) as f64 / all as f64
    }
}

fn table(all: &[Met], margins: Margins) -> String {
    let mut text =
        "| scenario | ops/s base | this | time/op | CPU/op base | this | change | p99 base | this | change | \
                    allocations/op base | this | allocated | others' CPU | |\n\
                    | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |\n"
            .to_owned();
    let change = |ratio: f64| format!("{:+.1}%", (ratio - 1.0) * 100.0);
    for met in all {
        let cpu: fn(&Taken) -> f64 = |taken| taken.cpu_us;
        let tail: fn(&Taken) -> f64 = |taken| taken.p99_us;
        let rate: fn(&Taken) -> f64 = |taken| taken.rate;
        let count: fn(&Taken) -> f64 = |taken| taken.allocations;
        let worse = met.worse(margins);
        let both = |figure: fn(&Taken) -> f64| {
            format!(
                "{} ({})",
                change(met.ratio(figure)),
                change(met.undisturbed_ratio(figure))
            )
        };
        let verdict = if worse.is_empty() {
            String::new()
        } else {
            format!("**worse: {}**", worse.join(", "))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {} | {:.0}% | {verdict} |",
            met.key,
            per_second(met.middle(0, rate)),
            per_second(met.middle(1, rate)),
            both(|taken| 1.0 / taken.rate),
            time(met.middle(0, cpu)),
            time(met.middle(1, cpu)),
            both(cpu),
            time(met.middle(0, tail)),
            time(met.middle(1, tail)),
            both(tail),
            met.middle(0, count),
            met.middle(1, count),
            change(met.ratio(|taken| taken.allocated_bytes)),
            met.others * 100.0,
        );
    }
    text
}
