//! See `flatkube_fuzz::field_selector`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::field_selector(data));
