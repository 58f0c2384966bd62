//! Runs a scenario under callgrind and reads the count.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixtures::Fixtures;
use crate::{Scenario, region};

/// Where callgrind's profiles stay: `target/instructions/`.
fn profile_of(name: &str) -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = tmp.parent().unwrap_or(tmp).join("instructions");
    std::fs::create_dir_all(&folder).expect("a directory");
    folder.join(format!("{name}.out"))
}

/// Instructions of one round.
pub(crate) fn count(scenario: &Scenario, fixtures: &Fixtures) -> u64 {
    let profile = profile_of(scenario.name);
    let data = fixtures.copy(scenario.data);
    let mut command = Command::new("valgrind");
    // Nothing of this process' surroundings is to change the stack of the other.
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
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
