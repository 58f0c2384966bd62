//! See `flatkube_fuzz::request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::request(data));
