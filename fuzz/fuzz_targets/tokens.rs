//! See `flatkube_fuzz::tokens`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::tokens(data));
