//! Records at every place of arbitrary bytes, as they are and under right checksums.

#![no_main]

#[path = "../../format/tests/properties/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    exercise::record(input);
    let mut bytes = input.to_vec();
    for at in (0..bytes.len()).step_by(16) {
        exercise::seal_record(&mut bytes, at, 0);
    }
    exercise::record(&bytes);
});
