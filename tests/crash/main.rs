//! A real process under load, killed again and again with SIGKILL: every acknowledged write is there after the restart, no
//! other is there in half, and watchers see each event once and in order, over all restarts.
//!
//! 32 writers own ten keys each and make every kind of write: creates, puts and patches with and without conditions,
//! patches of status, deletes, deletions of collections, and some that must be refused. Each knows, for each key, the last
//! acknowledged version and the one that was under way when the connection broke. After a restart a key must be at one of the
//! two, content and revision. Watchers list once and then follow from the last revision that they saw; what they were
//! told must add up to what the server lists, and hold every acknowledged write. No revision is ever given to two writes.
//! Lists of the past are byte for byte what they were before the kill.
//!
//! Log segments, shelf parts and history are small, so that kills fall into their making; many are aimed at it. The server is
//! also killed while it starts, several times in a row, ended in order, and `flatkube store verify` looks at what
//! it left.
//!
//! A second test cuts the power of a real file system instead: what was not synced is gone then.
//!
//! `FLATKUBE_CRASH_KILLS` is the number of kills under load (8). `FLATKUBE_CRASH_SEED` repeats the choices of a run, though
//! not the timing of the machine. What fails keeps its directory, and says where.

#[path = "../process/client.rs"]
mod client;
mod killing;
mod model;
#[path = "../process/mount.rs"]
mod mount;
#[path = "../process/mod.rs"]
mod process;
mod run;
mod watcher;
mod writer;

use std::path::Path;
use std::process::{Command, Stdio};

use killing::{Moment, spin, up_to_micros};
use mount::Mount;
use run::{End, Run};

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| {
        text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
    })
}

/// Where a run keeps its files. Kept when the run fails.
struct Folder {
    folder: Option<tempfile::TempDir>,
    /// Name of the test.
    test: &'static str,
    seed: u64,
    kills: u64,
}

impl Folder {
    fn new(test: &'static str, kills: u64) -> Folder {
        let seed = setting("FLATKUBE_CRASH_SEED", u64::from(std::process::id()));
        println!("{test}: FLATKUBE_CRASH_SEED={seed} FLATKUBE_CRASH_KILLS={kills}");
        let folder = Folder {
            folder: Some(tempfile::tempdir().expect("a folder")),
            test,
            seed,
            kills,
        };
        client::write_tokens(&folder.path().join("tokens.csv"));
        folder
    }

    fn path(&self) -> &Path {
        self.folder.as_ref().expect("there until it is dropped").path()
    }

    /// `flatkube server` on `data`, with everything small.
    fn command(&self, data: &Path) -> Command {
        let mut command = Command::new(process::FLATKUBE);
        command
            // What controllers write would be counted as a client's.
            .args([
                "server",
                "--controllers",
                "off",
                "--disable-admission-plugins",
                "ServiceAccount",
            ])
            .args(["--bind", "127.0.0.1:0", "--http-bind", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(data)
            .arg("--token-auth-file")
            .arg(self.path().join("tokens.csv"))
            .args(["--segment-bytes", "1048576", "--shelve-min-bytes", "65536"])
            .args(["--part-bytes", "131072", "--history-bytes", "256MiB"])
            .args(["--history-age", "20", "--history-bytes-min", "4194304"]);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = self.folder.take().expect("dropped once").keep();
            eprintln!(
                "the directory is kept: {}\nthe same choices again: FLATKUBE_CRASH_SEED={} FLATKUBE_CRASH_KILLS={} cargo \
                 test --test crash {} -- --nocapture",
                kept.display(),
                self.seed,
                self.kills,
                self.test
            );
        }
    }
}

/// Starts a server some times only to kill it: recovery itself may be cut off anywhere.
fn kill_while_starting(command: &mut Command, random: &mut fastrand::Rng, killed: &mut u64) {
    for _ in 0..random.u8(1..4) {
        let mut starting = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        spin(up_to_micros(random, 16));
        starting.kill().expect("a signal");
        starting.wait().expect("its end");
        *killed += 1;
    }
}

#[test]
fn acknowledged_writes_survive_sigkill_at_any_moment() {
    let kills = setting("FLATKUBE_CRASH_KILLS", 8);
    let folder = Folder::new("acknowledged_writes_survive_sigkill_at_any_moment", kills);
    let mut random = fastrand::Rng::with_seed(folder.seed);
    let data = folder.path().join("data");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut run = Run::new();
    while run.figures.killed < kills {
        let end = if random.u8(..10) == 0 {
            End::InOrder
        } else {
            End::Killed
        };
        let (moment, mut command) = (Moment::random(&mut random), folder.command(&data));
        runtime.block_on(run.live(&mut command, &data.join("store"), &mut random, moment, end));
        if random.u8(..3) == 0 {
            kill_while_starting(&mut command, &mut random, &mut run.figures.killed_starting);
        }
        if random.u8(..6) == 0 {
            process::flatkube_ok(&["store", "verify", data.to_str().expect("a plain path")]);
            run.figures.verified += 1;
        }
        println!("{}", run.report());
    }
    let writes = *run.ledger.writes.borrow();
    assert!(writes > 100 * kills, "{writes} writes are too few to show anything");
}

/// Where an ext4 on a loop device can be mounted: no write that was acknowledged is lost with what the kernel had not written.
#[test]
fn acknowledged_writes_survive_a_power_cut() {
    let cuts = setting("FLATKUBE_CRASH_KILLS", 8) / 2;
    let folder = Folder::new("acknowledged_writes_survive_a_power_cut", cuts);
    let mut random = fastrand::Rng::with_seed(folder.seed);
    let place = folder.path().join("disk");
    std::fs::create_dir(&place).expect("made");
    let Some(mut mount) = Mount::ext4(&place, &folder.path().join("image"), 1 << 30) else {
        return;
    };
    let data = mount.path().join("data");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut run = Run::new();
    while run.figures.powerless < cuts {
        let (moment, mut command) = (Moment::random(&mut random), folder.command(&data));
        let end = End::PowerCut(&mut mount);
        runtime.block_on(run.live(&mut command, &data.join("store"), &mut random, moment, end));
        if random.u8(..3) == 0 {
            kill_while_starting(&mut command, &mut random, &mut run.figures.killed_starting);
        }
        println!("{}", run.report());
    }
}
