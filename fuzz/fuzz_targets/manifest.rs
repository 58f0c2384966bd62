//! A manifest, as it is and under right checksums; what is accepted encodes to the same bytes.

#![no_main]

#[path = "../../format/tests/properties/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    exercise::manifest(input);
    let mut bytes = input.to_vec();
    if exercise::seal_manifest(&mut bytes) {
        exercise::manifest(&bytes);
    }
});
