//! The house rules that a machine can check, over the files of the repository itself.
//!
//! What the rules are for stands in `docs/architecture.md`.

use std::fs;
use std::path::{Path, PathBuf};

/// The layers of the program from the bottom up. A folder may use what stands before it, never what stands after it;
/// folders of one row may not use each other.
const LAYERS: [&[&str]; 13] = [
    &["re2"],
    &["store", "tree", "scalars", "remote"],
    &["cel"],
    &["schema"],
    &["resources", "patch"],
    &["admission", "auth", "encryption"],
    &["audit"],
    &["api"],
    &["events"],
    &["scheduler", "hollow"],
    &["controllers"],
    &["cli"],
    &["main.rs"],
];

/// The files that may have `unsafe`: maps, access to archives that were checked before, the handler of `SIGBUS`, and (no part
/// of the program) an allocator that counts.
const UNSAFE: [&str; 4] = [
    "src/store/archive.rs",
    "src/store/bus_error.rs",
    "src/store/map.rs",
    "benches/api_load/allocations.rs",
];

/// A file longer than this is two things.
const LINES_MAX: usize = 800;

struct Source {
    /// Path from the repository's root, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// Numbered lines of code: comments left out, and everything from the file's test module on when `tests` is false.
    fn code(&self, tests: bool) -> impl Iterator<Item = (usize, &str)> {
        let end = if tests {
            None
        } else {
            self.text.find("\n#[cfg(test)]\nmod ")
        };
        self.text[..end.unwrap_or(self.text.len())]
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.split_once("//").map_or(line, |(code, _)| code)))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files under `folder`, in a fixed order.
fn sources(folder: &str) -> Vec<Source> {
    let mut pending = vec![root().join(folder)];
    let mut paths: Vec<PathBuf> = Vec::new();
    while let Some(folder) = pending.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| Source {
            text: fs::read_to_string(&path).expect("a readable file"),
            path: path
                .strip_prefix(root())
                .expect("under the root")
                .to_str()
                .expect("a plain name")
                .to_owned(),
        })
        .collect()
}

fn all_sources() -> Vec<Source> {
    let all: Vec<Source> = ["src", "format/src", "tests", "benches", "fuzz/src"]
        .into_iter()
        .flat_map(sources)
        .collect();
    assert!(all.len() > 20, "the repository was not found: {} files", all.len());
    all
}

/// Fails with all that was found, so that one run shows everything.
fn none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

/// Whether a file holds tests alone: the module above names it under `#[cfg(test)]`.
fn is_test(source: &Source, all: &[Source]) -> bool {
    let path = source.path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let (folder, name) = path.rsplit_once('/').expect("under src/");
    let declaration = format!("#[cfg(test)]\nmod {name};");
    let above = [
        format!("{folder}/mod.rs"),
        format!("{folder}.rs"),
        format!("{folder}/lib.rs"),
    ];
    all.iter()
        .any(|other| above.contains(&other.path) && other.text.contains(&declaration))
}

/// The files of the program under `folder`, without those that are tests.
fn program(folder: &str) -> Vec<Source> {
    let all = sources("src");
    let own = sources(folder);
    own.into_iter().filter(|source| !is_test(source, &all)).collect()
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
        !line[..start].ends_with(part_of_a_name) && !line[start + word.len()..].starts_with(part_of_a_name)
    })
}

#[test]
fn reads_know_no_json_tree() {
    let mut found = Vec::new();
    for source in program("src/store").iter().chain(&program("src/api/read")) {
        for (number, line) in source.code(false) {
            if line.contains("serde_json") || has_word(line, "Value") && !line.contains("HeaderValue") {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    none(
        "what reads serve is slices of stored bytes; no file of the read path parses JSON",
        &found,
    );
}

#[test]
fn unsafe_code_lives_in_three_files_of_the_store() {
    let mut found = Vec::new();
    for source in all_sources() {
        if UNSAFE.contains(&source.path.as_str()) {
            assert!(
                source.text.contains("SAFETY:"),
                "{} justifies its unsafe code",
                source.path
            );
            continue;
        }
        for (number, line) in source.code(true) {
            let declared = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern"];
            if declared
                .iter()
                .any(|form| line.contains(form) && has_word(line, "unsafe"))
                && !line.contains('"')
            {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    none(
        "unsafe code outside archive.rs, bus_error.rs and map.rs of src/store",
        &found,
    );
}

#[test]
fn layers_call_downwards_only() {
    let height = |name: &str| LAYERS.iter().position(|row| row.contains(&name));
    let mut found = Vec::new();
    for source in sources("src") {
        let mut parts = source.path.split('/').skip(1);
        let own = parts.next().expect("src/ holds it").trim_end_matches(".rs");
        let Some(own_height) = height(own) else { continue };
        for (number, line) in source.code(true) {
            for (start, _) in line.match_indices("crate::") {
                let used: String = line[start + 7..]
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                    .collect();
                if used == own {
                    continue;
                }
                if height(&used).is_some_and(|used_height| used_height >= own_height) {
                    found.push(format!("{}:{number}: {own} uses {used}", source.path));
                }
            }
        }
    }
    for source in sources("format/src") {
        for (number, line) in source.code(true) {
            if line.contains("flatkube::") || line.contains("std::fs") || line.contains("tokio") {
                found.push(format!(
                    "{}:{number}: format is pure functions over bytes: {}",
                    source.path,
                    line.trim()
                ));
            }
        }
    }
    none("a layer calls one that stands beside or above it", &found);
}

#[test]
fn a_file_is_one_thing() {
    let found: Vec<String> = all_sources()
        .iter()
        .filter(|source| source.text.lines().count() > LINES_MAX)
        .map(|source| format!("{}: {} lines", source.path, source.text.lines().count()))
        .collect();
    none(&format!("files longer than {LINES_MAX} lines"), &found);
}

#[test]
fn names_say_what_a_file_is_about() {
    let vague = [
        "util", "utils", "helper", "helpers", "common", "misc", "stuff", "shared",
    ];
    let found: Vec<String> = all_sources()
        .iter()
        .filter(|source| {
            source
                .path
                .split('/')
                .any(|part| vague.contains(&part.trim_end_matches(".rs")))
        })
        .map(|source| source.path.clone())
        .collect();
    none("names that could hold anything", &found);
}

#[test]
fn every_file_of_the_program_says_what_it_is() {
    let found: Vec<String> = all_sources()
        .iter()
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| source.path.clone())
        .collect();
    none("files that do not begin with `//!`", &found);
}

#[test]
fn nothing_unfinished_is_left_lying() {
    let mut found = Vec::new();
    for source in all_sources().iter().filter(|source| source.path != "tests/tidy.rs") {
        for (number, line) in source.text.lines().enumerate() {
            if ["todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME", "XXX"]
                .iter()
                .any(|mark| line.contains(mark))
            {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    none("unfinished code", &found);
}

#[test]
fn tests_wait_for_conditions_and_do_not_sleep() {
    let mut found = Vec::new();
    for source in sources("tests").iter().filter(|source| source.path != "tests/tidy.rs") {
        for (number, line) in source.code(true) {
            // A sleep among the arms of a select is a bound on waiting for something else.
            if line.contains("thread::sleep(") || line.contains("sleep(") && line.contains(".await") {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    none("a test sleeps", &found);
}

#[test]
fn only_commands_print() {
    let mut found = Vec::new();
    for source in program("src")
        .iter()
        .filter(|source| !source.path.starts_with("src/cli/"))
    {
        for (number, line) in source.code(false) {
            if ["println!(", "print!(", "eprintln!("]
                .iter()
                .any(|form| line.contains(form))
            {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    none("the library prints", &found);
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = fs::read_to_string(root().join("docs/dependencies.md")).expect("docs/dependencies.md");
    let manifests = ["Cargo.toml", "format/Cargo.toml"].map(|path| fs::read_to_string(root().join(path)).expect(path));
    let mut count = 0;
    let mut found = Vec::new();
    for manifest in &manifests {
        let mut inside = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                inside = line.ends_with("dependencies]");
            } else if inside
                && let Some(name) = line.split(['=', '.', ' ']).next()
                && !name.is_empty()
                && !name.starts_with('#')
                && name != "flatkube-format"
            {
                count += 1;
                if !reasons.contains(&format!("`{name}`")) {
                    found.push(name.to_owned());
                }
            }
        }
    }
    assert!(count > 20, "the manifests were not read: {count} dependencies");
    found.sort();
    found.dedup();
    none("crates that docs/dependencies.md gives no reason for", &found);
}
