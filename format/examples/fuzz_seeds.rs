//! Writes the seed corpora of the fuzz targets: `cargo run -p flatkube-format --example fuzz_seeds`.

#[path = "../tests/properties/exercise.rs"]
mod exercise;
#[path = "../tests/properties/specimens.rs"]
mod specimens;

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    for specimen in specimens::all() {
        let folder = seeds.join(specimen.target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(specimen.name), specimen.bytes)?;
    }
    Ok(())
}
