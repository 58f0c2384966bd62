//! Loads a store and says what it cost: `cargo run --release --example store_load -- [OBJECTS] [os|fsync] [DIRECTORY]`.
//!
//! 32 async writers create Pod-like objects of about 3 KiB. Printed are the time, group commit, the disk's own sync time,
//! private anonymous memory (while loading: the highest of samples every 20 ms), what shelving wrote, and a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flatkube::store::disk::RealDisk;
use flatkube::store::{
    ArchiveError, Archiver, Change, Durability, Options, Precondition, Prepared, Range, Selection, Store, Write,
};
use flatkube_format::sidecar::{Fill, Hole, Pair, Sidecar};

struct NoArchiver;

impl Archiver for NoArchiver {
    fn layout(&self, _resource: &str) -> u32 {
        1
    }

    fn archive(&self, _resource: &str, _key: &str, _json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        Err(ArchiveError("nothing is archived again here".into()))
    }
}

const WRITERS: usize = 32;

fn pod(index: usize) -> (String, Prepared) {
    let namespace = format!("namespace-{:03}", index * 7919 % 100);
    let name = format!(
        "deployment-{:04}-{:010x}",
        index % 2000,
        index * 2_654_435_761 % (1 << 40)
    );
    let mut json =
        format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","resourceVersion":""#).into_bytes();
    let splice = json.len() as u32;
    json.extend_from_slice(br#""},"spec":{"containers":[{"env":""#);
    let filler = format!("{index:08}-environment-variable-of-a-pod,");
    while json.len() < 2900 {
        json.extend_from_slice(filler.as_bytes());
    }
    json.extend_from_slice(br#""}]}}"#);
    let pair = |name: &str, value: String| Pair {
        name: name.into(),
        value,
    };
    let row = format!(
        r#"{{"cells":["{name}","1/1","Running",0,"AGE","node-{}"],"object":"#,
        index % 1000
    );
    let sidecar = Sidecar {
        layout: 1,
        metadata_start: 12,
        splice,
        metadata_tail: 2,
        created: 1_700_000_000,
        uid: format!("{index:08x}-0000-4000-8000-000000000000"),
        labels: vec![
            pair("app.kubernetes.io/instance", format!("app-{}", index % 500)),
            pair("app.kubernetes.io/name", format!("app-{}", index % 500)),
            pair("pod-template-hash", format!("{:x}", index % 2000)),
            pair("tier", ["web", "db", "cache"][index % 3].into()),
        ],
        fields: vec![
            pair("spec.nodeName", format!("node-{}", index % 1000)),
            pair("spec.restartPolicy", "Always".into()),
            pair("spec.schedulerName", "default-scheduler".into()),
            pair("spec.serviceAccountName", "default".into()),
            pair("status.phase", "Running".into()),
            pair(
                "status.podIP",
                format!("10.{}.{}.{}", index >> 16, index >> 8 & 255, index & 255),
            ),
        ],
        owners: vec![format!("{:08x}-1111-4000-8000-000000000000", index % 2000)],
        row: row.replacen("AGE", "", 1),
        holes: vec![Hole {
            at: row.find("AGE").unwrap_or_default() as u32,
            fill: Fill::Since(1_700_000_000),
        }],
    };
    (
        format!("{namespace}/{name}"),
        Prepared {
            json,
            splice,
            sidecar: sidecar.archive(),
        },
    )
}

fn anonymous_kib() -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = smaps
        .lines()
        .find(|line| line.starts_with("Anonymous:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let objects: usize = arguments
        .next()
        .map_or(100_000, |count| count.parse().expect("a number of objects"));
    let durability = match arguments.next().as_deref() {
        Some("os") => Durability::Os,
        _ => Durability::Fsync,
    };
    let kept = tempfile::tempdir().expect("a temporary directory");
    let directory = arguments
        .next()
        .map_or_else(|| kept.path().join("store"), PathBuf::from);
    let disk = Arc::new(RealDisk::create(&directory).expect("the directory"));
    let options = Options {
        durability,
        ..Options::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");

    let start = Instant::now();
    let store = Store::open(disk.clone(), options.clone(), Arc::new(NoArchiver)).expect("it opens");
    println!("open {:?}, anonymous {} KiB", start.elapsed(), anonymous_kib());

    let peak = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let sampler = std::thread::spawn({
        let (peak, stop) = (peak.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous_kib(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });

    let start = Instant::now();
    runtime.block_on(async {
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut slowest = Duration::ZERO;
                for index in (writer..objects).step_by(WRITERS) {
                    let (key, prepared) = pod(index);
                    let begin = Instant::now();
                    let change = Change::Put(prepared);
                    let write = Write {
                        resource: "pods".into(),
                        key,
                        precondition: Precondition::Absent,
                        uid: None,
                        change,
                    };
                    store.write(write).await.expect("it is written");
                    slowest = slowest.max(begin.elapsed());
                }
                slowest
            })
        });
        let mut slowest = Duration::ZERO;
        for writer in writers.collect::<Vec<_>>() {
            slowest = slowest.max(writer.await.expect("a writer"));
        }
        println!("slowest write {slowest:?}");
    });
    let elapsed = start.elapsed();
    let stats = store.stats();
    println!(
        "{objects} objects in {elapsed:?}: {:.0}/s, {:.1} per batch, sync {:.0} us, {} shelvings of {} MiB",
        objects as f64 / elapsed.as_secs_f64(),
        stats.records as f64 / stats.batches as f64,
        stats.log_sync_nanoseconds as f64 / 1e3 / stats.log_syncs.max(1) as f64,
        stats.shelvings,
        stats.shelved_bytes >> 20,
    );
    println!(
        "anonymous: peak {} KiB, after the load {} KiB",
        peak.load(Ordering::Relaxed),
        anonymous_kib()
    );
    let start = Instant::now();
    while store
        .stats()
        .resources
        .iter()
        .any(|resource| resource.delta_entries > 0)
    {
        std::thread::sleep(Duration::from_millis(50));
        if start.elapsed() > Duration::from_mins(1) {
            println!("not all is shelved after a minute");
            break;
        }
    }
    let stats = store.stats();
    println!(
        "shelved after {:?} more: anonymous peak {} KiB, now {} KiB, {} parts, {} MiB shelf, {} MiB log",
        start.elapsed(),
        peak.load(Ordering::Relaxed),
        anonymous_kib(),
        stats.resources[0].parts,
        stats.resources[0].shelf_bytes >> 20,
        stats.log_bytes >> 20,
    );

    // A lone writer: what does an answer take over the sync itself?
    runtime.block_on(async {
        let syncs = (stats.log_syncs, stats.log_sync_nanoseconds);
        let mut total = Duration::ZERO;
        for index in 0..200 {
            let (key, prepared) = pod(objects + index);
            let change = Change::Put(prepared);
            let write = Write {
                resource: "pods".into(),
                key,
                precondition: Precondition::Absent,
                uid: None,
                change,
            };
            let begin = Instant::now();
            store.write(write).await.expect("it is written");
            total += begin.elapsed();
        }
        let stats = store.stats();
        let sync = (stats.log_sync_nanoseconds - syncs.1) as f64 / (stats.log_syncs - syncs.0).max(1) as f64 / 1e3;
        println!("a lone write: {:?}, of which sync {sync:.0} us", total / 200);
    });
    stop.store(true, Ordering::Relaxed);
    sampler.join().expect("the sampler");
    store.close();
    drop(store);

    let start = Instant::now();
    let store = Store::open(disk, options, Arc::new(NoArchiver)).expect("it opens");
    let opened = start.elapsed();
    let view = store.view();
    let mut listing = view.list("pods", Range::default(), &Selection::default());
    let mut bytes = 0;
    let mut runs = 0;
    while let Some(run) = listing.next(usize::MAX).expect("it is readable") {
        runs += 1;
        bytes += match &run {
            flatkube::store::Run::Shelved(run) => run.json().expect("it is whole").len(),
            flatkube::store::Run::One(object) => object.json().expect("it is whole").len(),
        };
    }
    println!(
        "restart {opened:?}, first full list {:?} ({runs} runs, {} MiB), anonymous {} KiB",
        start.elapsed(),
        bytes >> 20,
        anonymous_kib()
    );
}
