//! Makes what the library embeds: the schema of the built-in kinds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
