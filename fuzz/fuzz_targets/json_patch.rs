//! See `flatkube_fuzz::json_patch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::json_patch(data));
