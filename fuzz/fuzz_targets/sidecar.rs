//! A sidecar and everything in it, at two alignments.

#![no_main]

#[path = "../../format/tests/properties/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    exercise::sidecar(input);
    let moved = [&[0], input].concat();
    exercise::sidecar(&moved[1..]);
});
