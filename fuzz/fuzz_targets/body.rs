//! See `flatkube_fuzz::body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::body(data));
