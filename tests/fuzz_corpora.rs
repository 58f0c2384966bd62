//! The seeds of the fuzz targets, and every input that once broke something, on stable Rust: each target's function over
//! each of its seeds. See `docs/fuzzing.md`.
//!
//! `FLATKUBE_FUZZ_SEEDS=write` writes the seeds that are made by a program.

#[allow(unreachable_pub, dead_code, reason = "written as a library for the fuzzers")]
#[path = "../fuzz/src/lib.rs"]
mod attacks;

use std::fs;
use std::path::{Path, PathBuf};

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds")
}

#[test]
fn every_seed_of_every_target_keeps_its_promises() {
    for (target, run) in attacks::TARGETS {
        let folder = seeds().join(target);
        let mut count = 0;
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a readable folder").path();
            let bytes = fs::read(&path).expect("a readable file");
            println!("{}", path.display());
            run(&bytes);
            // The beginning of each, too: what is cut short must be refused as well as what is whole.
            run(&bytes[..bytes.len() / 2]);
            count += 1;
        }
        assert!(count > 0, "{target} has seeds");
    }
}

#[test]
fn every_target_is_built_for_the_fuzzer() {
    let manifest = fs::read_to_string(seeds().join("../Cargo.toml")).expect("fuzz/Cargo.toml");
    for (target, _) in attacks::TARGETS {
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")),
            "{target}"
        );
        let wrapper = fs::read_to_string(seeds().join(format!("../fuzz_targets/{target}.rs"))).expect(target);
        assert!(wrapper.contains(&format!("flatkube_fuzz::{target}(")), "{target}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), attacks::TARGETS.len());
}

#[test]
fn sound_directories_open() {
    let folder = seeds().join("data_directory");
    for name in ["new", "small", "killed", "shelved", "closed"] {
        let seed = attacks::directory_seed(name);
        if std::env::var_os("FLATKUBE_FUZZ_SEEDS").is_some() {
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(name), &seed).expect("a file");
        }
        attacks::data_directory(&seed);
    }
}
