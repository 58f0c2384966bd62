//! See `flatkube_fuzz::label_selector`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::label_selector(data));
