//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::scenario::Scenario;
use crate::stage::Effort;

/// Where a baseline lies unless told otherwise.
pub(crate) const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/perf-baseline.json");

#[derive(Debug, Parser)]
#[command(
    name = "api_load",
    bin_name = "cargo bench --bench api_load --",
    about = "Measures the API over real connections, beside a bare server that answers bodies of the same size",
    long_about = "Runs complete servers in this process, on directories of their own under target/tmp, and asks them over real \
        connections. By turns with each read the limit is measured: a bare hyper server that answers a constant body of \
        the same size over the same transport (large bodies from a mapped file, watches from a stream). The Markdown \
        table goes to stdout, progress to stderr.\n\n\
        A scenario is measured in runs of several rounds; the median over the runs of each figure by itself is \
        reported. Before anything is timed, the content of a whole answer is checked. A request that fails, or an answer \
        of another length, ends the program with status 1 and names the scenario, the path, the status and the body.",
    after_long_help = "\
Figures:
  ops/s, p50, p90, p99    as the clients see it; all clients run on the program's main thread
  CPU/op                  CPU time of the whole process without that thread: workers, committer, shelving, and the
                          kernel's work in their system calls
  allocations/op          heap allocations of the same threads, and their bytes; growing a block counts as a new one
  limit/ours CPU          the limit's CPU/op divided by ours: 1.00 is nothing but the transport
  ours/limit ops/s        our rate divided by the limit's

Scenarios are known by name/transport/encoding/state/objects, such as list_all/plain/gzip/shelved/1000. The states:
  empty       nothing but what the scenario writes
  shelved     all objects in shelves
  delta       none of them shelved
  delta full  a quarter of them updated since they were shelved; with more the server would shelve
  cold        shelved, the page cache dropped, the server just started
  live        the server shelves in the background while it is asked

Examples:
  Everything small, and with the large store at the size that the design speaks of:
      cargo bench --bench api_load -- --objects 100000

  One scenario in all its forms; only its TLS form:
      cargo bench --bench api_load -- --scenario list_table
      cargo bench --bench api_load -- --scenario list_table/tls

  A baseline on a quiet machine; later, what has changed since:
      cargo bench --bench api_load -- --save-baseline
      cargo bench --bench api_load -- --compare

  Two builds of api_load by turns, as bench/perf-compare.sh does:
      cargo bench --bench api_load -- --against /path/to/base/api_load

Exit status:
  0   measured; with --compare or --against: nothing became slower than its margin
  1   a request failed or an answer was wrong, or something became slower than its margin
  2   the command line was not understood
  3   measured, but no baseline was saved because the machine was busy (--json still writes)
  4   --against: the other build cannot take part (it is older than this option)"
)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Arguments {
    /// Pods of the large store
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2_000..))]
    pub(crate) objects: u32,

    /// Only the scenario of this key, or those whose keys contain this; may be given more than once
    #[arg(long, value_name = "PART")]
    pub(crate) scenario: Vec<String>,

    /// Only the scenarios of this set
    #[arg(long, value_enum, default_value_t = Set::All)]
    pub(crate) set: Set,

    /// Runs of each scenario
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) runs: usize,

    /// Rounds of each run
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,

    /// How long one side of a round takes, for scenarios that can be made longer
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub(crate) half_round_ms: u64,

    /// Each scenario of the set `quick` once, as short as possible: content is checked, times mean nothing
    #[arg(long, conflicts_with_all = ["save_baseline", "compare", "against"])]
    pub(crate) quick: bool,

    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the figures to bench/perf-baseline.json, unless the machine is busy
    #[arg(long)]
    pub(crate) save_baseline: bool,

    /// Compare with the figures of this file (default: bench/perf-baseline.json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = BASELINE)]
    pub(crate) compare: Option<PathBuf>,

    /// Compare with this other build of api_load, round by round by turns
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["compare", "save_baseline", "json"])]
    pub(crate) against: Option<PathBuf>,

    /// Percent of ops/s that may be lost, and by which CPU/op may grow
    #[arg(long, value_name = "PERCENT", default_value_t = 15.0)]
    pub(crate) margin: f64,

    /// Percent by which p99 may grow (default: twice the margin)
    #[arg(long, value_name = "PERCENT")]
    pub(crate) margin_p99: Option<f64>,

    /// Name the scenarios and end
    #[arg(long)]
    pub(crate) list: bool,

    /// Do not count allocations: to see that counting changes no timing
    #[arg(long)]
    pub(crate) no_allocations: bool,

    /// Take commands on stdin: the other half of --against
    #[arg(long, hide = true)]
    pub(crate) paced: bool,

    /// Serve until stdin ends: a server whose memory is its own
    #[arg(long, hide = true)]
    pub(crate) serve: bool,

    /// What cargo passes
    #[arg(long, hide = true)]
    bench: bool,
}

/// Which scenarios run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Set {
    /// All of them
    All,
    /// Small ones that are steady from run to run: about two minutes
    Compare,
    /// Those that take less than a second to prepare
    Quick,
}

impl Arguments {
    /// Whether a scenario is to run. A part that is a whole key of `all` names that one alone.
    pub(crate) fn wants(&self, scenario: &Scenario, all: &[Scenario]) -> bool {
        let in_set = match self.set() {
            Set::All => true,
            Set::Compare => scenario.sets.compare,
            Set::Quick => scenario.sets.quick,
        };
        let key = scenario.key.to_string();
        let names = |part: &String| {
            key == *part || key.contains(part.as_str()) && all.iter().all(|other| other.key.to_string() != *part)
        };
        in_set && (self.scenario.is_empty() || self.scenario.iter().any(names))
    }

    fn set(&self) -> Set {
        match self.set {
            Set::All if self.quick => Set::Quick,
            Set::All if self.against.is_some() && self.scenario.is_empty() => Set::Compare,
            set => set,
        }
    }

    /// Pods of the large store; few where times mean nothing.
    pub(crate) fn objects(&self) -> usize {
        if self.quick { 2_000 } else { self.objects as usize }
    }

    pub(crate) fn effort(&self) -> Effort {
        if self.quick {
            return Effort {
                runs: 1,
                rounds: 1,
                half_round: Duration::ZERO,
                warm: false,
            };
        }
        Effort {
            runs: self.runs.max(1),
            rounds: self.rounds.max(1),
            half_round: Duration::from_millis(self.half_round_ms.max(1)),
            warm: true,
        }
    }

    pub(crate) fn margins(&self) -> crate::compare::Margins {
        crate::compare::Margins {
            rate: self.margin / 100.0,
            p99: self.margin_p99.unwrap_or(self.margin * 2.0) / 100.0,
        }
    }
}
