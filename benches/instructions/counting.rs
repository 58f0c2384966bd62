//! Runs a scenario under callgrind and reads the count.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixtures::Fixtures;
use crate::{Scenario, region};

/// Where callgrind's profiles stay: `target/instructions/`.
fn profile_of(name: &str) -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = tmp.parent().unwrap_or(tmp).join("instructions");
    std::fs::create_dir_all(&folder).expect("a directory");
    folder.join(format!("{name}.out"))
}

/// Instructions of one round of each scenario, `repeat` times; as many scenarios at a time as there are CPUs.
pub(crate) fn count_all(scenarios: &[Scenario], fixtures: &Fixtures, repeat: usize) -> Vec<Vec<u64>> {
    let next = AtomicUsize::new(0);
    let counts: Vec<OnceLock<Vec<u64>>> = scenarios.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some((scenario, counted)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            scenarios.get(index).zip(counts.get(index))
        } {
            counted.get_or_init(|| (0..repeat).map(|_| count(scenario, fixtures)).collect());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    counts.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Instructions of one round.
fn count(scenario: &Scenario, fixtures: &Fixtures) -> u64 {
    let profile = profile_of(scenario.name);
    let data = fixtures.copy(scenario.data);
    let mut command = Command::new("valgrind");
    // Nothing of this process' surroundings is to change the stack of the other.
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        // From some KiB on glibc copies by one `rep movsb`, which callgrind counts for each byte: a copy in larger pieces would
        // seem dearer.
        .env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1073741824");
    command.args(["--tool=callgrind", "--quiet"]);
    command.arg(format!("--callgrind-out-file={}", profile.display()));
    command.args([
        "--collect-atstart=no".to_owned(),
        format!("--toggle-collect={}", region::PATTERN),
    ]);
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--run", scenario.name, "--data"]);
    command.arg(data.path());
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run valgrind, which counts ({error}): install it (apt-get install valgrind)")
    });
    assert!(
        output.status.success(),
        "{} failed:\n{}",
        scenario.name,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::fs::read_to_string(&profile).expect("callgrind's profile");
    let total: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: ")))
        .and_then(|count| count.trim().parse().ok())
        .filter(|count| *count > 0)
        .unwrap_or_else(|| panic!("{} says nothing of {}", profile.display(), region::PATTERN));
    total / scenario.rounds
}
