//! See `flatkube_fuzz::cel`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::cel(data));
