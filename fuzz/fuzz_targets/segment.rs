//! A whole segment: header, walk, footer, the verdict on what is behind the records; as it is and under right checksums.

#![no_main]

#[path = "../../format/tests/properties/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    exercise::scan(input);
    let mut bytes = input.to_vec();
    exercise::seal_segment(&mut bytes);
    exercise::scan(&bytes);
    // damage behind right checksums: the verdict
    if let Some(middle) = bytes.len().checked_sub(1).map(|last| last / 2) {
        bytes[middle] ^= 0x10;
        exercise::scan(&bytes);
    }
});
