//! See `flatkube_fuzz::merge_patch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::merge_patch(data));
