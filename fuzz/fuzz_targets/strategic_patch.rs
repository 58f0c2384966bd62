//! See `flatkube_fuzz::strategic_patch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::strategic_patch(data));
