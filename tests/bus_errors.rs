//! A mapped page that cannot be read, tried with the real process: a file that is shortened under a running server gives
//! the same signal as a disk that fails.

#[path = "process/client.rs"]
mod client;
mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use client::Client;
use flatkube_format::manifest::Manifest;
use process::{Server, runtime};
use rustix::process::Signal;
use serde_json::json;

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// ConfigMaps of 4 KB: some hundreds of pages, in one shelf part.
const MAPS: usize = 200;
/// What is left of a file: heads and nothing of the objects behind.
const LEFT: u64 = 4096;

struct Filled {
    _folder: tempfile::TempDir,
    data: PathBuf,
    tokens: PathBuf,
    /// Of all texts.
    bytes: usize,
}

impl Filled {
    /// A data directory with `maps` ConfigMaps of `bytes` each in it, of a server that ended; all on a shelf if `shelved`.
    fn new(maps: usize, bytes: usize, shelved: bool) -> Filled {
        let folder = tempfile::tempdir().expect("a folder");
        let filled = Filled {
            data: folder.path().join("data"),
            tokens: folder.path().join("tokens.csv"),
            bytes: maps * bytes,
            _folder: folder,
        };
        client::write_tokens(&filled.tokens);
        let server = filled.serve();
        runtime().block_on(async {
            let mut client = Client::connect(server.http_address()).await.expect("it listens");
            for number in 0..maps {
                let body = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number:03}") },
                    "data": { "text": "x".repeat(bytes) },
                });
                assert_eq!(client.post(COLLECTION, &body).await.expect("an answer").status, 201);
            }
            while shelved && filled.part_of_the_maps().is_none() {
                // It is shelved after a second of quiet.
                assert_eq!(client.get("/readyz", "*/*").await.expect("an answer").status, 200);
            }
        });
        let ended = server.end("TERM");
        assert!(ended.status.success(), "{ended:?}");
        filled
    }

    fn serve(&self) -> Server {
        Server::over_http(&self.data, &self.tokens)
    }

    fn manifest(&self) -> Manifest {
        let bytes = fs::read(self.data.join("store/manifest")).expect("a manifest");
        Manifest::decode(&bytes).expect("a whole manifest")
    }

    /// The first shelf part of the ConfigMaps that has all of them.
    fn part_of_the_maps(&self) -> Option<String> {
        let manifest = self.manifest();
        let maps = manifest
            .resources
            .iter()
            .find(|resource| resource.name == "configmaps")?;
        let part = maps.parts.first()?;
        let name = format!("shelf-{:010}", part.file);
        let len = fs::metadata(self.data.join("store").join(&name)).ok()?.len();
        (len > self.bytes as u64).then_some(name)
    }

    /// The log segment that has the first one's creation.
    fn segment_of_the_maps(&self) -> String {
        let name = |number: u64| format!("segment-{number:010}");
        let holds = |file: &String| {
            let bytes = fs::read(self.data.join("store").join(file)).expect("a segment");
            bytes.windows(9).any(|window| window == b"\"map-000\"")
        };
        let segments = self.manifest().segments;
        let mut files = segments.iter().map(|segment| name(segment.number));
        files.find(holds).expect("it is history")
    }

    fn shorten(&self, file: &str) {
        let path = self.data.join("store").join(file);
        let file = fs::File::options().write(true).open(path).expect("writable");
        file.set_len(LEFT).expect("shortened");
    }
}

/// Asks until the connection breaks: whether it broke.
async fn breaks(server: &Server, path: &str) -> bool {
    match Client::connect(server.http_address()).await {
        Ok(mut client) => client.get(path, "application/json").await.is_err(),
        Err(_) => true,
    }
}

/// The number behind `mark`, in whatever notation.
fn number_behind(line: &str, mark: &str) -> u64 {
    let start = line.find(mark).unwrap_or_else(|| panic!("{mark} is not in {line:?}")) + mark.len();
    let number: String = line[start..].chars().take_while(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&number, if mark.ends_with("0x") { 16 } else { 10 }).expect("a number")
}

fn told_and_ended_by_the_signal(server: Server, file: &str) {
    let ended = server.wait();
    assert_eq!(ended.status.signal(), Some(Signal::BUS.as_raw()), "{ended:?}");
    let mut lines = ended.log.lines().skip_while(|line| !line.contains("SIGBUS"));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("nothing was said: {}", ended.log));
    assert!(line.contains(file), "{line}");
    assert!(number_behind(line, "at offset ") >= LEFT, "{line}");
    assert!(number_behind(line, "(address 0x") > LEFT, "{line}");
    let advice = lines.next().expect("what to do");
    assert!(
        advice.starts_with("what to do") && advice.contains("store verify") && advice.contains("store restore"),
        "{advice}"
    );
}

#[test]
fn a_shelf_that_is_shortened_under_a_server_is_named_and_the_signal_ends_it() {
    let filled = Filled::new(MAPS, 4000, true);
    let part = filled.part_of_the_maps().expect("it was there");
    let server = filled.serve();
    filled.shorten(&part);
    assert!(runtime().block_on(breaks(&server, COLLECTION)));
    told_and_ended_by_the_signal(server, &part);
}

#[test]
fn a_segment_that_is_shortened_under_a_server_is_named_and_the_signal_ends_it() {
    let filled = Filled::new(MAPS, 4000, false);
    let segment = filled.segment_of_the_maps();
    let server = filled.serve();
    filled.shorten(&segment);
    // What is history is read from the log, wherever the objects are by now.
    let watch = format!("{COLLECTION}?watch=true&resourceVersion=1&timeoutSeconds=20");
    assert!(runtime().block_on(breaks(&server, &watch)));
    told_and_ended_by_the_signal(server, &segment);
}

/// Long slices of maps go to the socket without our touching them: mostly it is the kernel that finds the page gone, and the
/// server goes on; now and then the end of the list is looked up only then, in the index, and the signal comes.
#[test]
fn a_page_that_is_missed_while_an_answer_is_sent_breaks_it_and_is_told() {
    // More than the buffers of both ends of a connection hold, in one part of a shelf.
    let filled = Filled::new(70, 100_000, true);
    let part = filled.part_of_the_maps().expect("it was there");
    let server = filled.serve();
    // From here on its blocks are proven, so none is looked at again.
    assert!(
        !runtime().block_on(breaks(&server, COLLECTION)),
        "a list of a whole file breaks"
    );

    let mut stream = TcpStream::connect(server.http_address()).expect("it listens");
    let request = format!(
        "GET {COLLECTION} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        client::TOKEN
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut begin = [0; 512];
    stream.read_exact(&mut begin).expect("it begins");
    filled.shorten(&part);
    let mut rest = Vec::new();
    // An end or an error, whichever the kernel gives.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 7_000_000, "all came: {} bytes", rest.len());
    let ended = server.end("KILL");
    let told = ["a mapped file cannot be read", "SIGBUS: cannot read"];
    assert!(
        told.iter().any(|told| ended.log.contains(told)) && ended.log.contains("store verify"),
        "{}",
        ended.log
    );
}

#[test]
fn a_bus_error_that_somebody_sends_ends_the_process_as_ever() {
    let server = Server::ephemeral();
    let ended = server.end("BUS");
    assert_eq!(ended.status.signal(), Some(Signal::BUS.as_raw()), "{ended:?}");
    assert!(!ended.log.contains("SIGBUS"), "{}", ended.log);
}
