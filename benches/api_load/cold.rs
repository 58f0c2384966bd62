//! Lists by a server that has just started, with the page cache dropped; against a bare server that reads a file of the
//! same size, dropped too, in large steps and ahead of what it sends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use crate::answer::Expected;
use crate::client::{Client, Encoding, Question, Target, Transport};
use crate::cost::stopwatch;
use crate::dataset::Served;
use crate::failure::Failure;
use crate::limit::Limit;
use crate::reads::TABLE;
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::stage::{Stage, shelved_pods};
use flatkube::store::Durability;

/// All of them, for a store of `objects` Pods.
pub(crate) fn scenarios(objects: usize) -> Vec<Scenario> {
    let list = Question::get("/api/v1/pods");
    let page = Question::get("/api/v1/pods?limit=500").accept(TABLE);
    let scenario = |name, about, question: Question, expected: Expected| Scenario {
        key: Key::plain(name, State::Cold, objects),
        about,
        clients: 1,
        sets: Sets {
            lone_round: true,
            ..Sets::default()
        },
        open: Box::new(move |stage| Cold::open(stage, &question, &expected)),
    };
    vec![
        scenario("list_full", "all Pods, read from disk", list, Expected::All(objects)),
        scenario(
            "list_table_page",
            "the first 500 Pods as kubectl get asks for them, read from disk",
            page,
            Expected::Count(500),
        ),
    ]
}

struct Cold {
    runtime: Rc<tokio::runtime::Runtime>,
    question: Question,
    served: Option<Served>,
    limit: Limit,
    limit_file: PathBuf,
    len: u64,
    _folder: tempfile::TempDir,
}

impl Cold {
    fn open(stage: &mut Stage, question: &Question, expected: &Expected) -> Result<Box<dyn Running>, Failure> {
        let served = shelved_pods(stage.objects, Durability::Os);
        let runtime = stage.runtime.clone();
        let body = runtime.block_on(async {
            let mut client = Client::connect(&served.target, Transport::Plain).await?;
            client.read(question).await
        })?;
        expected.check(&question.path, Encoding::Identity, &body)?;
        let folder = tempfile::tempdir_in(crate::dataset::base()).expect("a directory");
        let limit_file = folder.path().join("body");
        std::fs::write(&limit_file, &body).expect("a file");
        let limit = Limit::start(&served.data_dir);
        limit.set_file(&limit_file);
        Ok(Box::new(Self {
            runtime,
            question: question.clone(),
            served: Some(served),
            limit,
            limit_file,
            len: body.len() as u64,
            _folder: folder,
        }))
    }

    fn ask(&self, target: &Target) -> Result<Batch, Failure> {
        self.runtime.block_on(async {
            let mut client = Client::connect(target, Transport::Plain).await?;
            let stop = stopwatch();
            let begun = Instant::now();
            let bytes = client.ask(&self.question).await?;
            let mut batch = Batch {
                took: vec![begun.elapsed()],
                bytes,
                ..Batch::default()
            };
            batch.cost = stop();
            if self.len.abs_diff(bytes) < 256 {
                return Ok(batch);
            }
            let what = format!("an answer of {bytes} bytes, not {}", self.len);
            Err(Failure::content(&self.question.path, what, b""))
        })
    }
}

impl Running for Cold {
    fn ours(&mut self) -> Result<Round, Failure> {
        let served = self.served.take().expect("a server").restart(false, drop_from_cache);
        let before = fetched();
        let batch = self.ask(&served.target);
        if fetched() < before + self.len / 4 {
            eprintln!("  note: the page cache was not dropped here, this is a warm figure");
        }
        self.served = Some(served);
        Ok(batch?.into())
    }

    fn limit(&mut self) -> Result<Option<Batch>, Failure> {
        forget(&self.limit_file);
        Ok(Some(self.ask(&self.limit.target)?))
    }
}

/// Drops every file below `folder` from the page cache. Works for files that nobody maps.
fn drop_from_cache(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            drop_from_cache(&path);
        } else {
            forget(&path);
        }
    }
}

fn forget(path: &Path) {
    let file = File::open(path).expect("a file");
    // Only clean pages are dropped.
    rustix::fs::fdatasync(&file).expect("a sync");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
}

/// Bytes that this process has had fetched from a disk.
fn fetched() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}
