//! The seeds of the fuzz targets, and every input that once broke something, on stable Rust: each target's function over
//! each of its seeds. See `docs/fuzzing.md`.
//!
//! `FLATKUBE_FUZZ_SEEDS=write` writes the seeds that are made by a program.

#[allow(unreachable_pub, dead_code, reason = "written as a library for the fuzzers")]
#[path = "../fuzz/src/lib.rs"]
mod attacks;

use std::fmt::Write as _;
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

/// On a test's thread, which has 2 MiB of stack as the server's have, and builds whose frames are larger.
#[test]
fn what_is_deep_or_long_or_refers_to_itself_is_refused_or_taken() {
    let target = |name: &str| {
        attacks::TARGETS
            .iter()
            .find(|(target, _)| *target == name)
            .expect("a target")
            .1
    };
    // As `body` reads them: configmaps or deployments, JSON or YAML.
    let number = |plural: &str| {
        let all = flatkube::resources::all();
        all.iter()
            .position(|resource| resource.plural == plural)
            .expect("a resource") as u8
    };
    let (configmaps, deployments) = (number("configmaps"), number("deployments"));
    let (json, yaml) = (0x00, 0x10);
    let input = |first: u8, second: u8, text: &str| [&[first, second], text.as_bytes()].concat();
    let nested = |open: &str, middle: &str, close: &str, depth: usize| {
        [&open.repeat(depth), middle, &close.repeat(depth)].concat()
    };
    for depth in [90, 130, 20_000] {
        let lists = nested("[", "", "]", depth);
        let unknown = nested("{\"data\":", "1", "}", depth);
        let known = nested("{\"spec\":{\"template\":", "1", "}}", depth);
        for text in [
            &lists,
            &unknown,
            &known,
            &format!("{{\"x\":{lists}}}"),
            &"[".repeat(depth),
        ] {
            target("tree")(text.as_bytes());
            target("body")(&input(configmaps, json, text));
            target("body")(&input(deployments, json, text));
            target("body")(&input(configmaps, yaml, text));
            for patch in ["json_patch", "merge_patch", "strategic_patch"] {
                target(patch)(&input(0, 0, text));
            }
        }
        target("body")(&input(configmaps, yaml, &format!("x:\n {}", "- ".repeat(depth))));
        target("body")(&input(configmaps, yaml, &format!("x: {}", "? ".repeat(depth))));
        let numbers = format!("{}.{}Ki", "9".repeat(depth), "9".repeat(depth));
        target("scalars")(numbers.as_bytes());
        target("label_selector")("a in (b,c),".repeat(depth).trim_end_matches(',').as_bytes());
    }
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}", level - 1);
        let again = vec![before; 10].join(",");
        writeln!(laughs, "a{level}: &a{level} [{again}]").unwrap();
    }
    target("body")(&input(configmaps, yaml, &laughs));
    // Each copy doubles the object.
    let double = r#"{"op":"copy","from":"","path":"/data/x"},"#.repeat(100);
    target("json_patch")(&input(0, 0, &format!("[{}]", double.trim_end_matches(','))));
    let containers: Vec<String> = (0..5_000)
        .map(|number| format!(r#"{{"name":"c{number}","image":"x"}}"#))
        .collect();
    let containers = containers.join(",");
    let ports: Vec<String> = (1..2_000)
        .map(|number| format!(r#"{{"containerPort":{number},"name":"p{number}"}}"#))
        .collect();
    let ports = ports.join(",");
    let pod = format!(
        r#"{{"metadata":{{"name":"a"}},"spec":{{"containers":[{{"name":"c","image":"x","ports":[{ports}]}}]}}}}"#
    );
    target("body")(&input(number("pods"), json, &pod));
    let ordered = format!(r#"{{"spec":{{"$setElementOrder/containers":[{containers}],"containers":[{containers}]}}}}"#);
    target("strategic_patch")(&input(1, 0, &ordered));
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
