//! A part of a shelf and every accessor, as it is and under right checksums.

#![no_main]

#[path = "../../format/tests/properties/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    exercise::shelf(input);
    let mut bytes = input.to_vec();
    if exercise::seal_shelf(&mut bytes) {
        exercise::shelf(&bytes);
    }
});
